package redislock

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if child, ok := os.LookupEnv(childVariable); ok {
		runChild(child)
		return
	}
	// After many failed dials go-redis dials once a second in the background: this ends within a second of Close.
	goleak.VerifyTestMain(measured{m}, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

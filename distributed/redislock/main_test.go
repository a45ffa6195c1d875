package redislock

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/internal/testlocker"
)

func TestMain(m *testing.M) {
	if testlocker.Child(openURL) {
		return
	}
	// After many failed dials go-redis dials once a second in the background: this ends within a second of Close.
	go stalls.run()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/wllock/wllock/distributed/redislock.(*stallMeter).run"),
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

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
	goleak.VerifyTestMain(measured{m})
}

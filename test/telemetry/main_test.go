package telemetry_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/internal/testlocker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = testlocker.TTL

var (
	newLocker = testlocker.New
	nothing   = testlocker.Nothing
	never     = testlocker.Never
	lostAfter = testlocker.LostAfter
)

package wllock_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/internal/testlocker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = testlocker.TTL

var (
	newLocker = testlocker.New
	lockerOn  = testlocker.On
	hold      = testlocker.Hold
	nothing   = testlocker.Nothing
	never     = testlocker.Never
	lostAfter = testlocker.LostAfter
)

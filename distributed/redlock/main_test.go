package redlock

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/internal/testlocker"
)

func TestMain(m *testing.M) {
	if testlocker.Child(openURL) {
		return
	}
	goleak.VerifyTestMain(m)
}

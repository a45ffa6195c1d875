package sqllock

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/internal/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main(m)) }

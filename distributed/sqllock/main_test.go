package sqllock

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testlocker"
)

func TestMain(m *testing.M) {
	if testlocker.Child(openURL) {
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // tests wait most of the time; of six at a time some fail by their own load
		panic(err)
	}
	goleak.VerifyTestMain(dbtest.Main(m))
}

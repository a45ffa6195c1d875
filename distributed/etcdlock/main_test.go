package etcdlock

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testlocker"
)

func TestMain(m *testing.M) {
	if testlocker.Child(openURL) {
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil { // tests wait most of the time
		panic(err)
	}
	goleak.VerifyTestMain(etcdtest.Main(m))
}

package precise

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wllock/wllock/internal/testscope"
)

func TestSleepIsNeverShortAndHardlyLong(t *testing.T) {
	testscope.Long(t, "bounds wall time")
	for _, d := range []time.Duration{200 * time.Microsecond, time.Millisecond} {
		took := make([]time.Duration, 200)
		for i := range took {
			start := time.Now()
			Sleep(d)
			took[i] = time.Since(start)
		}
		slices.Sort(took)
		assert.GreaterOrEqual(t, took[0], d)
		if runtime.GOOS == "linux" { // generous, because the machine may be busy
			assert.Less(t, took[len(took)/2], d+time.Millisecond/2)
		}
		t.Logf("%v: median %v, worst %v", d, took[len(took)/2], took[len(took)-1])
	}
}

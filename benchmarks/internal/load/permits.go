package load

import (
	"strconv"
	"time"

	"github.com/wllock/wllock/benchmarks/internal/contender"
)

// permits are loads of eight permits: far more callers than permits, half as many again, and just as many.
func permits() []Scenario {
	var all []Scenario
	for _, workers := range []int{64, 3, 2} {
		shape := "4x" + strconv.Itoa(workers)
		all = append(all, Scenario{
			Name: "permits-" + shape, Title: "8 permits over Redis, 2.5 to 7.5 ms of work, " + shape + " callers", Group: contender.OverPermits,
			Instances: 4, Workers: workers, Links: both, Bound: BoundPermits, Permits: contender.Permits,
			Work: 5 * time.Millisecond, Jitter: 0.5, Settle: settleSale,
		})
	}
	return all
}

package report

import "github.com/wllock/wllock/benchmarks/internal/load"

// permitShares are the goals of permits, of what a semaphore inside one process does: when many wait, and when each caller could have one.
var permitShares = []goal{
	{"permits-4x64", load.Loopback, "of the limit's ops/s", false, 0.97, opsToLimit},
	{"permits-4x2", load.Loopback, "of the limit's ops/s", false, 0.9, opsToLimit},
}

package report

import (
	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/load"
)

// batchGains are the goals of a batch guard with its default size, beside what sells without our lock, and beside one order in each
// hold.
var batchGains = []goal{
	{"sale-postgres-4x64", load.Loopback, "times the orders/s of the best without a lock of ours", false, 10, toOneRow(contender.Batched(64))},
	{"sale-postgres-4x64", load.Loopback, "times the orders/s of one per hold", false, 12, toGuard(ops)},
	{"sale-postgres-4x64", load.Loopback, "p99, times that of one per hold", true, 0.2, toGuard(p99)},
	{"sale-postgres-4x64", load.Delayed, "pipelined, times the orders/s of the best without a lock of ours", false, 2, toOneRow(contender.Batched(64) + contender.Pipelined)},
	{"sale-postgres-4x64", load.Delayed, "times the orders/s of one per hold", false, 35, toGuard(ops)},
	{"sale-postgres-4x64", load.Delayed, "p99, times that of one per hold", true, 0.2, toGuard(p99)},
	{"sale-sqlite-4x64", load.Loopback, "times the orders/s of the best without a lock of ours", false, 10, toOneRow(contender.Batched(64))},
	{"sale-sqlite-4x64", load.Loopback, "times the orders/s of one per hold", false, 12, toGuard(ops)},
	{"batch-work-4x64", load.Loopback, "times the serial limit", false, 40, opsToLimit},
	{"lone-postgres", load.Loopback, "p50, times that of one per hold", true, 1.1, toGuard(p50)},
	{"lone-postgres", load.Delayed, "p50, times that of one per hold", true, 1.1, toGuard(p50)},
	{"lone-sqlite", load.Loopback, "p50, times that of one per hold", true, 1.1, toGuard(p50)},
}

// toGuard compares with the guard that serves one caller in each hold.
func toGuard(f func(Total) float64) func(Table) (float64, bool) {
	return func(t Table) (float64, bool) {
		own, okOwn := ours(t, f)
		guard, ok := t.named(contender.Guard)
		return ratio(own, okOwn, f(guard.Total), ok)
	}
}

// toOneRow compares a contender with the best that sells from one row without our lock, in as few round trips as it can. A stock in many rows is
// another shop.
func toOneRow(name string) func(Table) (float64, bool) {
	return func(t Table) (float64, bool) {
		own, okOwn := t.named(name)
		most := 0.0
		for _, r := range t.find(contender.Rival) {
			if r.Contender != contender.ManyRows {
				most = max(most, ops(r.Total))
			}
		}
		return ratio(ops(own.Total), okOwn, most, most > 0)
	}
}

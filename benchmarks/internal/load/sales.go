package load

import (
	"time"

	"github.com/wllock/wllock/benchmarks/internal/contender"
)

const (
	// settleSale bounds the warm-up: the slowest serves 4 x 256 callers over a slow link in about that time.
	settleSale = 4 * time.Second
	// settleFile is less, because waiters for a file poll for it, and some are not served in any round.
	settleFile = time.Second
)

// sales are those of the group that sells in batches.
func sales() []Scenario {
	sale := func(name, title string, in contender.Store, instances, workers int, links []Link, only ...string) Scenario {
		settle := settleSale
		if in == contender.InSQLite {
			settle = settleFile
		}
		return Scenario{Name: name, Title: title, Group: contender.OverBatch, Instances: instances, Workers: workers, Links: links,
			In: []contender.Store{in}, Only: only, Sale: true, Fences: true, Settle: settle}
	}
	work := Scenario{Name: "batch-work-4x64", Title: "1 ms of work under one lock over Redis, 4 instances of 64 callers", Group: contender.OverBatch,
		Instances: 4, Workers: 64, Work: workTime, Links: both, Bound: BoundWork, In: []contender.Store{contender.InRedis}, Settle: settleSale}
	lone := []string{contender.Batched(64), contender.Guard}
	return []Scenario{
		sale("sale-postgres-4x64", "One product on PostgreSQL, 4 instances of 64 buyers", contender.InPostgres, 4, 64, both),
		sale("sale-postgres-4x256", "One product on PostgreSQL, 4 instances of 256 buyers", contender.InPostgres, 4, 256, both),
		sale("sale-sqlite-4x64", "One product in SQLite, 4 instances of 64 buyers", contender.InSQLite, 4, 64, both),
		sale("sale-sqlite-4x256", "One product in SQLite, 4 instances of 256 buyers", contender.InSQLite, 4, 256, local),
		work,
		sale("lone-postgres", "A lone buyer on PostgreSQL", contender.InPostgres, 1, 1, both, lone...),
		sale("lone-sqlite", "A lone buyer in SQLite", contender.InSQLite, 1, 1, local, lone...),
	}
}

package load

import (
	"time"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/server"
)

const (
	// settleSale bounds the warm-up: the slowest serves 4 x 256 callers over a slow link in about that time.
	settleSale = 4 * time.Second
	// settleFile is less, because waiters for a file poll for it, and some are not served in any round.
	settleFile = time.Second
)

// sales are those of the group that sells in batches.
func sales() []Scenario {
	sale := func(name, title string, in server.Store, instances, workers int, links []Link, only ...string) Scenario {
		settle := settleSale
		if in == server.SQLite {
			settle = settleFile
		}
		return Scenario{Name: name, Title: title, Group: contender.OverBatch, Instances: instances, Workers: workers, Links: links,
			In: []server.Store{in}, Only: only, Sale: true, Fences: true, Settle: settle}
	}
	work := Scenario{Name: "batch-work-4x64", Title: "1 ms of work under one lock over Redis, 4 instances of 64 callers", Group: contender.OverBatch,
		Instances: 4, Workers: 64, Work: workTime, Links: both, Bound: BoundWork, In: []server.Store{server.Redis}, Settle: settleSale}
	lone := []string{contender.Batched(64), contender.Guard}
	return []Scenario{
		sale("sale-postgres-4x64", "One product on PostgreSQL, 4 instances of 64 buyers", server.Postgres, 4, 64, both),
		sale("sale-postgres-4x256", "One product on PostgreSQL, 4 instances of 256 buyers", server.Postgres, 4, 256, both),
		sale("sale-sqlite-4x64", "One product in SQLite, 4 instances of 64 buyers", server.SQLite, 4, 64, both),
		sale("sale-sqlite-4x256", "One product in SQLite, 4 instances of 256 buyers", server.SQLite, 4, 256, local),
		work,
		sale("lone-postgres", "A lone buyer on PostgreSQL", server.Postgres, 1, 1, both, lone...),
		sale("lone-sqlite", "A lone buyer in SQLite", server.SQLite, 1, 1, local, lone...),
	}
}

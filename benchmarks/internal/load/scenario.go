// Package load drives contenders through scenarios and measures them.
package load

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/server"
)

// Link is the way to the server.
type Link string

// The links.
const (
	Loopback Link = "loopback"
	Warm     Link = "warm"  // loopback, and no core sleeps: otherwise a lone caller leaves them idle
	Delayed  Link = "0.5ms" // each way, through slowlink; to one Redis
)

// Links are all of them, in the order of the results.
var Links = []Link{Loopback, Warm, Delayed}

// Title is the link's name in text.
func (l Link) Title() string {
	switch l {
	case Warm:
		return "loopback, warm"
	case Delayed:
		return "0.5 ms each way"
	}
	return string(l)
}

// Delay is the time packets take on a delayed link, each way.
const Delay = 500 * time.Microsecond

// Bound is what limits a scenario; it is measured in the same run, as one more contender.
type Bound uint8

const (
	BoundPings     Bound = iota // as many callers, each sending PINGs
	BoundRoundTrip              // one caller sending PINGs: one round trip after the other
	BoundWork                   // the same work, one after the other, without a lock
)

// Keys says which keys a goroutine asks for.
type Keys uint8

const (
	Hot     Keys = iota // all the same one
	Own                 // each its own one
	Free                // each its own ones, going round: a key is free and not the last one used
	Zipfian             // some of zipfKeys, the first ones much more often
)

const (
	zipfKeys     = 10_000
	zipfExponent = 1.1
	freeKeys     = 4096
	workTime     = time.Millisecond
	lingerTime   = time.Second
)

// Scenario is one kind of load.
type Scenario struct {
	Name      string
	Title     string
	Group     contender.Group
	Instances int // each with its own clients, as if it were a process
	Workers   int // goroutines per instance
	Work      time.Duration
	Keys      Keys
	Links     []Link
	Bound     Bound
	Longer    int     // how many times as long its rounds are; 0: once. Fairness shows over several tenures
	HandOvers bool    // measure from one instance's return to another's start
	OnlyOurs  bool    // rivals have nothing like it
	Fences    bool    // check that they grow, of those that promise it
	Readers   float64 // how many of the calls are a reader's, of 1; a contender without readers' locks takes exclusive ones
	Locker    []wllock.Option
	In        []server.Store // of the contenders that take part; none: all
	Only      []string       // the contenders that take part; none: all
	Floors    []string       // those of the floors that do what a lock must do here
	Permits   int            // so many may be inside at a time; 0: one
	Jitter    float64        // by how much the work of a call differs from Work at most, of 1
	Sale      bool           // callers buy, and the database is audited after each round
	Settle    time.Duration  // warm up for as long at most, until every caller has been served once
}

// Has reports whether a contender takes part.
func (s Scenario) Has(c contender.Contender) bool {
	if c.Role == contender.Floor {
		return slices.Contains(s.Floors, c.Name)
	}
	in := len(s.In) == 0 || slices.Contains(s.In, c.Store)
	return in && (len(s.Only) == 0 || c.Role == contender.Limit || slices.Contains(s.Only, c.Name))
}

var (
	both  = []Link{Loopback, Delayed}
	local = []Link{Loopback}
)

// Scenarios returns all, in the order of the results.
func Scenarios() []Scenario {
	return slices.Concat(overRedis(),
		onOneKey("redlock", "Redlock, five servers", contender.OverRedlock, false),
		slices.Delete(onOneKey("zookeeper", "ZooKeeper", contender.OverZooKeeper, false), 1, 2),
		[]Scenario{{Name: "zookeeper-readers", Title: "ZooKeeper: one hot key, 8 x 16, 8 readers for 2 writers", Group: contender.OverZooKeeper,
			Instances: 8, Workers: 16, Links: local, Readers: 0.8}},
		onOneKey("mysql", "MariaDB", contender.OverMySQL, true),
		onOneKey("postgres", "PostgreSQL", contender.OverPostgres, true),
		onOneKey("sqlite", "SQLite", contender.OverSQLite, true),
		onOneKey("etcd", "etcd", contender.OverEtcd, true),
		[]Scenario{{Name: "backends-8x16", Title: "Each backend: one hot key, 8 instances of 16 goroutines", Group: contender.OverEach,
			Instances: 8, Workers: 16, Links: local, Fences: true}},
		sales(), permits())
}

func overRedis() []Scenario {
	everyTurn := []wllock.Option{wllock.WithMaxHandoffs(0)}
	linger := []wllock.Option{wllock.WithLinger(lingerTime)}
	handOver, free, inside := []string{"LPUSH+BLPOP"}, []string{"SET NX+DEL"}, []string{"channel"}
	return []Scenario{
		{Name: "hot-1x64", Title: "One hot key, 1 instance of 64 goroutines", Instances: 1, Workers: 64, Links: both, Floors: inside},
		{Name: "hot-8x16", Title: "One hot key, 8 instances of 16 goroutines", Instances: 8, Workers: 16, Links: both, Floors: inside},
		{Name: "work-1x64", Title: "1 ms of work, 1 instance of 64 goroutines",
			Instances: 1, Workers: 64, Work: workTime, Links: both, Bound: BoundWork, Longer: 2},
		{Name: "work-8x16", Title: "1 ms of work, 8 instances of 16 goroutines",
			Instances: 8, Workers: 16, Work: workTime, Links: both, Bound: BoundWork, Longer: 2},
		{Name: "work-4x32", Title: "1 ms of work, 4 instances of 32 goroutines",
			Instances: 4, Workers: 32, Work: workTime, Links: []Link{Delayed}, Bound: BoundWork, Longer: 2},
		{Name: "every-turn-8x16", Title: "One hot key, 8 x 16, every turn over Redis (MaxHandoffs 0)",
			Instances: 8, Workers: 16, Links: both, Bound: BoundRoundTrip, Locker: everyTurn, Floors: handOver},
		{Name: "work-every-turn-8x16", Title: "1 ms of work, 8 x 16, every turn over Redis (MaxHandoffs 0)",
			Instances: 8, Workers: 16, Work: workTime, Links: local, Bound: BoundWork, Longer: 2, Locker: everyTurn, Floors: handOver},
		{Name: "free-1", Title: "One caller, free keys", Instances: 1, Workers: 1, Keys: Free, Links: Links, Floors: free},
		{Name: "work-free-1", Title: "1 ms of work, one caller, free keys",
			Instances: 1, Workers: 1, Work: workTime, Keys: Free, Links: local, Floors: free},
		{Name: "own-1", Title: "One caller, always the same key", Instances: 1, Workers: 1, Keys: Own, Links: Links, Floors: free},
		{Name: "work-own-1", Title: "1 ms of work, one caller, always the same key",
			Instances: 1, Workers: 1, Work: workTime, Keys: Own, Links: local, Floors: free},
		{Name: "own-64", Title: "64 goroutines, each with its own key", Instances: 1, Workers: 64, Keys: Own, Links: both, Floors: free},
		{Name: "work-own-64", Title: "1 ms of work, 64 goroutines, each with its own key",
			Instances: 1, Workers: 64, Work: workTime, Keys: Own, Links: local, Floors: free},
		{Name: "zipf-64", Title: "64 goroutines, 10,000 keys by Zipf(1.1)", Instances: 1, Workers: 64, Keys: Zipfian, Links: both},
		{Name: "alternate", Title: "Two instances handing over alternately, 1 ms of work",
			Instances: 2, Workers: 1, Work: workTime, Links: Links, Bound: BoundRoundTrip, HandOvers: true},
		{Name: "linger", Title: "One instance, one key, linger on", Instances: 1, Workers: 1, Keys: Own, Links: both,
			OnlyOurs: true, Locker: linger},
	}
}

// onOneKey are loads by one caller, by one instance and by several, which check fences or do not.
func onOneKey(name, title string, g contender.Group, fences bool) []Scenario {
	of := func(load, what string, instances, workers int) Scenario {
		return Scenario{Name: name + load, Title: title + what, Group: g, Instances: instances, Workers: workers, Links: local, Fences: fences}
	}
	return []Scenario{
		of("-1x1", ": one caller, one key", 1, 1),
		of("-1x64", ": one hot key, 1 instance of 64 goroutines", 1, 64),
		of("-8x16", ": one hot key, 8 instances of 16 goroutines", 8, 16),
	}
}

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
	lone := []string{contender.Batched(64), contender.Guard}
	return []Scenario{
		sale("sale-postgres-4x64", "One product on PostgreSQL, 4 instances of 64 buyers", server.Postgres, 4, 64, both),
		sale("sale-postgres-4x256", "One product on PostgreSQL, 4 instances of 256 buyers", server.Postgres, 4, 256, both),
		sale("sale-sqlite-4x64", "One product in SQLite, 4 instances of 64 buyers", server.SQLite, 4, 64, both),
		sale("sale-sqlite-4x256", "One product in SQLite, 4 instances of 256 buyers", server.SQLite, 4, 256, local),
		{Name: "batch-work-4x64", Title: "1 ms of work under one lock over Redis, 4 instances of 64 callers", Group: contender.OverBatch,
			Instances: 4, Workers: 64, Work: workTime, Links: both, Bound: BoundWork, In: []server.Store{server.Redis}, Settle: settleSale},
		sale("lone-postgres", "A lone buyer on PostgreSQL", server.Postgres, 1, 1, both, lone...),
		sale("lone-sqlite", "A lone buyer in SQLite", server.SQLite, 1, 1, local, lone...),
	}
}

// permits are loads of eight permits: far more callers than permits, half as many again, and just as many.
func permits() (all []Scenario) {
	for _, workers := range []int{64, 3, 2} {
		all = append(all, Scenario{
			Name:  fmt.Sprintf("permits-4x%d", workers),
			Title: fmt.Sprintf("8 permits over Redis, 2.5 to 7.5 ms of work, 4x%d callers", workers), Group: contender.OverPermits,
			Instances: 4, Workers: workers, Links: both, Permits: contender.Permits,
			Work: 5 * time.Millisecond, Jitter: 0.5, Settle: settleSale,
		})
	}
	return all
}

// shapeFor makes limits run in the shape of the bound, and limits and floors that know one process in one.
func (s Scenario) shapeFor(c contender.Contender) Scenario {
	switch {
	case c.Store == server.Memory && c.Role >= contender.Limit:
		s.Instances, s.Workers = 1, s.Instances*s.Workers
		return s
	case c.Role != contender.Limit:
		return s
	}
	if s.Bound != BoundPings {
		s.Instances, s.Workers = 1, 1
	}
	if s.Bound == BoundRoundTrip {
		s.Work = 0
	}
	s.HandOvers = false
	return s
}

// keyNames returns the keys a scenario needs.
func (s Scenario) keyNames() []string {
	n := map[Keys]int{Hot: 1, Own: s.Instances * s.Workers, Free: s.Instances * s.Workers * freeKeys, Zipfian: zipfKeys}[s.Keys]
	names := make([]string, n)
	for i := range names {
		names[i] = "bench:" + s.Name + ":" + strconv.Itoa(i)
	}
	return names
}

// chooser returns the function by which a worker, counted over all instances, chooses its next key.
func (s Scenario) chooser(worker int) func() int {
	switch s.Keys {
	case Own:
		return func() int { return worker }
	case Free:
		next := 0
		return func() int {
			next = (next + 1) % freeKeys
			return worker*freeKeys + next
		}
	case Zipfian:
		zipf := rand.NewZipf(rand.New(rand.NewPCG(uint64(worker), 1)), zipfExponent, 1, zipfKeys-1)
		return func() int { return int(zipf.Uint64()) }
	default:
		return func() int { return 0 }
	}
}

package contender

import (
	"fmt"
	"slices"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/benchmarks/internal/server"
)

const (
	// EveryTurn ends the name of a contender each of whose turns goes through the backend.
	EveryTurn = "-turns"
	// LongTenures ends the name of a contender with more hand-offs in a tenure than by default, which pays where a hand-over to
	// another instance is slow.
	LongTenures = "-1024"
)

const defaults = "all defaults (lease 5 s, renewed; at most 128 hand-offs or 100 ms per tenure)"

const (
	ourModule     = "github.com/wllock/wllock"
	goredisModule = "github.com/redis/go-redis/v9"
	zkModule      = "github.com/go-zookeeper/zk"
	mysqlModule   = "github.com/go-sql-driver/mysql"
	pgxModule     = "github.com/jackc/pgx/v5"
	sqliteModule  = "modernc.org/sqlite"
	etcdModule    = "go.etcd.io/etcd/client/v3"
)

// What is counted: of Redis what wllock's clients send; of memcached gets, add and cas, as it counts them; of others all that clients send.
var (
	ourCommands       = []string{"evalsha", "eval", "script", "subscribe", "unsubscribe", "ping", "hello", "client"}
	memcachedCommands = []string{"get", "set"}
	requests          = []string{"request"}
	statements        = []string{"statement"}
)

// place is where contenders meet.
type place struct {
	group  Group
	store  server.Store
	fenced bool // fences are compared
}

var (
	onRedis     = place{OverRedis, server.Redis, false}
	onRedlock   = place{OverRedlock, server.Redlock, false}
	onZooKeeper = place{OverZooKeeper, server.ZooKeeper, false}
	onMariaDB   = place{OverMySQL, server.MariaDB, true}
	onPostgres  = place{OverPostgres, server.Postgres, true}
	onSQLite    = place{OverSQLite, server.SQLite, true} // there is no server that counts
	onEtcd      = place{OverEtcd, server.Etcd, true}
	onPermits   = place{OverPermits, server.Redis, false}
)

// All returns all contenders by their groups, in each wllock first, limits last.
func All() []Contender {
	const pgDefaults = defaults + "; hand-overs pushed by NOTIFY"
	const lockedRow = "BEGIN and SELECT ... FOR UPDATE of a lock's row in one round trip, COMMIT"
	const perCaller = "; a connection for every holder or waiter"
	permits := "all defaults: a lease and a fence for each holder"
	ideal := Ideal()
	return slices.Concat(
		onRedis.has(Subject, ourModule, ourCommands,
			entry{"wllock", "all defaults (lease 5 s, renewed; fences; at most 128 hand-offs or 100 ms per tenure)", opener(overRedis)}),
		onRedis.tries(redsyncs), onRedis.tries(redislocks), onRedis.tries(rueidislocks),
		onRedis.has(Rival, goredisModule, []string{"set", "del"},
			entry{"wllock-java", "its algorithm in Go: fair local lock, SET NX PX without a pause, DEL", openJava}),
		floors(), []Contender{Ping(), ideal},
		onRedlock.ours(defaults, ourCommands, overRedlock("")), onRedlock.tries(redsyncs),
		onRedlock.has(Limit, goredisModule, []string{"ping"},
			entry{"PING", "one command to each server per call, of which a majority is awaited; no lock", openMajorityPing}),
		onZooKeeper.ours(defaults, requests, overZooKeeper),
		onZooKeeper.has(Rival, zkModule, requests,
			entry{"zk.Lock", "NewLock for each call, one connection per instance; knows no readers and no context", openZkLock}),
		onZooKeeper.has(Limit, zkModule, requests,
			entry{"exists", "one request per call, which the server answers from memory; no lock", openZkExists}),
		onMariaDB.longer(defaults, statements, overMariaDB),
		onMariaDB.has(Rival, mysqlModule, statements,
			entry{"GET_LOCK", "GET_LOCK and RELEASE_LOCK, a connection for every holder or waiter", getLock.on(openMariaDB)},
			entry{"FOR UPDATE", lockedRow + perCaller, mysqlRow.on(openMariaDB)}),
		onMariaDB.has(Limit, mysqlModule, statements, updates(openMariaDB)),
		onPostgres.longer(pgDefaults, statements, overPostgres),
		onPostgres.has(Rival, pgxModule, statements,
			entry{"advisory", "pg_advisory_lock and pg_advisory_unlock, of the session" + perCaller, advisory.on(openPostgres)},
			entry{"advisory-tx", "BEGIN and pg_advisory_xact_lock in one round trip, COMMIT" + perCaller, advisoryTx.on(openPostgres)},
			entry{"FOR UPDATE", lockedRow + perCaller, pgRow.on(openPostgres)}),
		onPostgres.has(Limit, pgxModule, statements, updates(openPostgres)),
		onSQLite.longer(defaults, nil, overSQLite),
		onSQLite.has(Rival, sqliteModule, nil,
			entry{"IMMEDIATE", "BEGIN IMMEDIATE and COMMIT: the write lock of the whole file, for any key; busy_timeout 60 s" +
				", a connection for every holder or waiter", immediate.on(openSQLite)}),
		onSQLite.has(Rival, "", nil,
			entry{"flock", "flock(2) of a file per key, opened for each call; knows no context and takes a thread for every waiter", openFlock}),
		onSQLite.has(Limit, sqliteModule, nil, updates(openSQLite)),
		onEtcd.longer(defaults, requests, overEtcd),
		onEtcd.has(Rival, etcdModule, requests,
			entry{"Mutex", "concurrency.Mutex, one client per instance and a session for every holder or waiter" +
				", as callers of one session do not exclude each other", openEtcdMutex}),
		onEtcd.has(Limit, etcdModule, requests, entry{"Put", "one put per call; no lock", openEtcdPut}),
		backends(),
		shops(),
		onPermits.has(Subject, ourModule, ourCommands, entry{"permits", "Permits(8), " + permits, openPermits}),
		onPermits.has(Rival, ourModule, ourCommands,
			entry{"sub-keys", "an exclusive lock on one of 8 keys, chosen at random", openSubKeys(false)},
			entry{"sub-keys-short", "an exclusive lock on that of 8 keys for which fewest callers of the instance wait", openSubKeys(true)}),
		place{OverPermits, server.Memory, false}.has(Limit, "golang.org/x/sync", nil,
			entry{"x/sync", "semaphore.Weighted, all callers in one process, no service", openWeighted}),
	)
}

// backends are wllock over each of its backends, with tenures and without. Those with tenures are compared with those
// without.
func backends() (all []Contender) {
	for _, row := range []struct {
		name, settings string
		store          server.Store
		fenced         bool
		commands       []string
		open           openBackend
	}{
		{"memory", "", server.Memory, true, nil, inMemory},
		{"redis", "", server.Redis, true, ourCommands, overRedis},
		{"redlock", "; no fences", server.Redlock, false, ourCommands, overRedlock("")},
		{"redlock+f", "the same with quorum fences", server.Redlock, true, ourCommands, overRedlock("?fences=quorum")},
		{"zookeeper", "", server.ZooKeeper, true, requests, overZooKeeper},
		{"postgres", "; hand-overs pushed by NOTIFY", server.Postgres, true, statements, overPostgres},
		{"mariadb", "", server.MariaDB, true, statements, overMariaDB},
		{"sqlite", "", server.SQLite, true, nil, overSQLite},
		{"etcd", "", server.Etcd, true, requests, overEtcd},
		{"memcached", "; no fences", server.Memcached, false, memcachedCommands, overMemcached},
	} {
		settings := row.settings
		if row.name != "redlock+f" {
			settings = defaults + settings
		}
		pair := place{OverEach, row.store, row.fenced}.ours(settings, row.commands, row.open)
		pair[0].Name, pair[1].Name = row.name, row.name+EveryTurn
		pair[0].Base = pair[1].Name
		all = append(all, pair...)
	}
	return all
}

// Ping sends one PING per call and locks nothing: the cost of a round trip, and the maximum rate of the machine.
func Ping() Contender {
	return onRedis.one(Limit, goredisModule, []string{"ping"}, entry{"PING", "one command per call, no lock", openPing})
}

// Ideal just calls the function, from one goroutine: the rate of a lock that costs nothing.
func Ideal() Contender {
	return onRedis.one(Limit, "", nil, entry{"ideal", "one goroutine, the same work one after the other, no lock", openIdeal})
}

// entry is a row of the table.
type entry struct {
	name, settings string
	open           func(Options) (Instance, error)
}

// has makes contenders of rows.
func (p place) has(role Role, module string, commands []string, rows ...entry) (all []Contender) {
	for _, r := range rows {
		all = append(all, p.one(role, module, commands, r))
	}
	return all
}

func (p place) one(role Role, module string, commands []string, r entry) Contender {
	return Contender{
		Name: r.name, Settings: r.settings, Module: module, Commands: commands, Open: r.open,
		Role: role, Group: p.group, Store: p.store, Fenced: p.fenced && role == Subject,
	}
}

// ours are wllock over a backend, with tenures and without.
func (p place) ours(settings string, commands []string, open openBackend) []Contender {
	return p.has(Subject, ourModule, commands,
		entry{"wllock", settings, opener(open)},
		entry{"wllock" + EveryTurn, "MaxHandoffs 0: every turn goes through the backend", opener(open, wllock.WithMaxHandoffs(0))})
}

// longer are ours and, after the first, the same with longer tenures.
func (p place) longer(settings string, commands []string, open openBackend) []Contender {
	return slices.Insert(p.ours(settings, commands, open), 1, p.has(Subject, ourModule, commands,
		entry{"wllock" + LongTenures, "MaxHandoffs 1024: tenures end by their time, 100 ms", opener(open, wllock.WithMaxHandoffs(1024))})...)
}

// library is a rival with a setting that matters.
type library struct {
	name, module string
	commands     []string
	settings     string // with %v for the setting
	tried        string // "the best of ..."
	values       []time.Duration
	open         func(o Options, value time.Duration) (Instance, error)
}

// tries returns a contender that takes part with the best setting, and one for each of them.
func (p place) tries(l library) []Contender {
	var tunings []Contender
	for _, v := range l.values {
		c := p.one(Rival, l.module, l.commands, entry{
			l.name + "-" + v.String(), fmt.Sprintf(l.settings, v), func(o Options) (Instance, error) { return l.open(o, v) },
		})
		c.Setting = v.String()
		tunings = append(tunings, c)
	}
	return tuned(l.name, fmt.Sprintf(l.settings, l.tried), tunings...)
}

// tuned returns a contender that takes part with the best of these, and each of them as a variant.
func tuned(name, settings string, tunings ...Contender) []Contender {
	for i := range tunings {
		tunings[i].Variant = true
	}
	c := tunings[0]
	c.Name, c.Settings, c.Tunings, c.Setting, c.Variant = name, settings, tunings, "", false
	return append([]Contender{c}, tunings...)
}

// pauses are tried with libraries that poll.
var pauses = []time.Duration{time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond}

var (
	// redsyncs have as their own default 50 to 250 ms, at random, and 32 tries.
	redsyncs = library{
		"redsync", "github.com/go-redsync/redsync/v4", []string{"set", "evalsha", "eval"},
		"retry delay %v, tries without limit", "the best of 1, 5, 10, 20 and 100 ms", pauses, openRedsync,
	}
	// redislocks do not try again by default.
	redislocks = library{
		"redislock", "github.com/bsm/redislock", []string{"evalsha", "eval"},
		"LinearBackoff %v", "the best of 1, 5, 10, 20 and 100 ms", pauses, openRedislock,
	}
	// rueidislocks do not poll: the server notifies them of a released key (client-side caching). What is tried is the time-out of one try, by
	// default 20 ms.
	rueidislocks = library{
		"rueidislock", "github.com/redis/rueidis", []string{"evalsha", "eval", "hello", "client", "ping"},
		"KeyMajority 1, NoLoopTracking, TryNextAfter %v", "the best of 20 ms, 100 ms and 1 s",
		[]time.Duration{time.Second, 100 * time.Millisecond, 20 * time.Millisecond}, openRueidislock,
	}
)

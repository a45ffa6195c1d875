// Package contender puts what is compared behind one interface: wllock, other libraries, and the limits of the machine.
//
// Each is used the way its documentation recommends for speed on the servers of its group. Where a library has a
// setting that matters, several are tried before each table, and the one with the most operations per second takes part.
// Each can also be chosen by a name with the setting: -contenders redsync-1ms,redsync-20ms.
//
// Read table.go first: a row is a contender.
package contender

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/benchmarks/internal/server"
	"github.com/wllock/wllock/distributed/memlock"
)

// ttl is the lock TTL of all contenders: wllock's default.
const ttl = wllock.DefaultLeaseTTL

// Contender is one way to run a function under a lock.
type Contender struct {
	Name     string
	Settings string // the relevant ones, and the others tried
	Module   string // its module; the results name the version
	Commands []string
	Open     func(o Options) (Instance, error)

	Role    Role
	Group   Group
	Store   server.Store // what it keeps its locks in, the same for each instance of a round
	Variant bool         // takes part only when named
	Locks   bool         // its locks are in Redis, its data in the store
	Fenced  bool         // promises fences that grow with every exclusive caller
	Base    string       // the contender whose operations per second its own are compared with; "": the best rival

	Tunings []Contender // the same with each of its settings; it takes part with the one that suits the load
	Setting string      // of a tuning
}

// Commands are those that a client of the contender sends itself, by their names in INFO commandstats; of ZooKeeper and etcd
// "request", of databases "statement". A Redis server also
// counts the calls of scripts, so a name must be either here or used in scripts; the harness checks that with MONITOR.

// Role says how to read a contender's figures.
type Role uint8

const (
	Subject Role = iota // wllock itself
	Rival               // another lock
	Limit               // no lock at all: what the machine can do
	Floor               // a plain primitive: the least that a lock must do in a scenario
)

// Group is a set of contenders and scenarios that are compared with each other. Each has results of its own.
type Group uint8

const (
	OverRedis     Group = iota // locks over one Redis
	OverRedlock                // locks over a majority of five Redis servers
	OverZooKeeper              // locks over ZooKeeper
	OverMySQL                  // locks in MariaDB
	OverPostgres               // locks in PostgreSQL
	OverSQLite                 // locks of one machine: a file of SQLite, or a file's lock
	OverEtcd                   // locks in etcd
	OverEach                   // wllock alone, over each of its backends
	OverBatch                  // ways to sell one product, and work under one lock: one by one and in batches
	OverPermits                // several holders at a time
)

var groups = []struct{ name, title string }{
	OverRedis:     {"redis", "Redis: wllock beside other locks"},
	OverRedlock:   {"redlock", "Redlock: wllock beside redsync on five Redis servers"},
	OverZooKeeper: {"zookeeper", "ZooKeeper: wllock beside the lock of the client library"},
	OverMySQL:     {"mysql", "MariaDB: wllock beside GET_LOCK and SELECT ... FOR UPDATE"},
	OverPostgres:  {"postgres", "PostgreSQL: wllock beside advisory locks and SELECT ... FOR UPDATE"},
	OverSQLite:    {"sqlite", "SQLite: wllock beside BEGIN IMMEDIATE and flock"},
	OverEtcd:      {"etcd", "etcd: wllock beside concurrency.Mutex"},
	OverEach:      {"backends", "All backends: wllock over each of them"},
	OverBatch:     {"batch", "Batches: one product, sold one by one and in batches"},
	OverPermits:   {"permits", "Permits: up to 8 holders at a time over all instances"},
}

// Groups returns all, in the order of a run.
func Groups() (all []Group) {
	for g := range groups {
		all = append(all, Group(g))
	}
	return all
}

// String returns the group's name on the command line.
func (g Group) String() string { return groups[g].name }

// Title heads the group's results.
func (g Group) Title() string { return groups[g].title }

// Options configure an instance. Each instance stands for a process, with its own connections.
type Options struct {
	Addr    string           // of the store; of several servers separated by commas
	Locks   string           // of the Redis server with the locks, for a contender that has them there and its data in the store
	Memory  *memlock.Backend // the store server.Memory
	Workers int              // goroutines that will call Do
	Locker  []wllock.Option  // for wllock alone: what the scenario is about
}

// Instance is one process's side of a contender.
type Instance struct {
	// Do runs f under the lock of key. It returns an error if ctx ended before the lock was acquired.
	Do func(ctx context.Context, key string, f func(context.Context) error) error
	// DoShared is Do under a lock for readers. nil: there is none.
	DoShared func(ctx context.Context, key string, f func(context.Context) error) error
	// Sell sells one product from a database, under locks of its own or ours, and returns nil when the order is in the database. The end
	// of ctx ends the wait, never an order that has begun: the audit compares what the database has with what buyers were told. nil: it
	// locks, and Do is there.
	Sell  func(ctx context.Context, buyer int64) error
	Close func() error
}

// Calls counts the top-level commands among all calls the server has counted, by names such as client|setinfo.
func (c Contender) Calls(counted map[string]int64) (n int64) {
	for name, calls := range counted {
		if command, _, _ := strings.Cut(name, "|"); slices.Contains(c.Commands, command) {
			n += calls
		}
	}
	return n
}

// lock is most Instances: take gets the lock of a key and returns how to release it; nil: what it got needs no release.
func lock(take func(ctx context.Context, key string) (release func() error, err error), end func() error) Instance {
	return Instance{Close: end, Do: func(ctx context.Context, key string, f func(context.Context) error) error {
		release, err := take(ctx, key)
		switch {
		case err != nil:
			return err
		case release == nil:
			return f(ctx)
		}
		return errors.Join(f(ctx), release())
	}}
}

// limit is a lock that does something and locks nothing.
func limit(do func(context.Context) error, end func() error) Instance {
	return lock(func(ctx context.Context, _ string) (func() error, error) { return nil, do(ctx) }, end)
}

func nothing() error { return nil }

// cleanUp is the context of releases, which must not be canceled when the measurement ends.
var cleanUp = context.Background()

// Package contender puts what is compared behind one interface: wllock, other libraries, and the limits of the machine.
//
// Each is used the way its documentation recommends for speed on the servers of its group. Where a library has a
// setting that matters, several are tried before each table, and the one with the most operations per second takes part.
// Each can also be chosen by a name with the setting: -contenders redsync-1ms,redsync-20ms.
package contender

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock"
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
	Store   Store
	Variant bool   // takes part only when named
	Locks   bool   // its locks are in Redis, its data in the store
	Fenced  bool   // promises fences that grow with every exclusive caller
	Base    string // the contender whose operations per second its own are compared with; "": the best rival

	Tunings []Contender // the same with each of its settings; it takes part with the one that suits the load
	Setting string      // of a tuning
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

// Commands are those that a client of the contender sends itself, by their names in INFO commandstats; of ZooKeeper and etcd
// "request", of databases "statement". A Redis server also
// counts the calls of scripts, so a name must be either here or used in scripts; the harness checks that with MONITOR.

// Role says how to read a contender's figures.
type Role uint8

const (
	Subject Role = iota // wllock itself
	Rival               // another lock
	Limit               // no lock at all: what the machine can do
)

// Options configure an instance. Each instance stands for a process, with its own connections.
type Options struct {
	Addr     string           // of the store; of several servers separated by commas
	Locks    string           // of the Redis server with the locks, for a contender that has them there and its data in the store
	Memory   *memlock.Backend // the store InMemory
	Workers  int              // goroutines that will call Do
	Locker   []wllock.Option  // for wllock alone: what the scenario is about
	Instance int
}

// Instance is one process's side of a lock.
type Instance interface {
	// Do runs f under the lock of key. It returns an error if ctx ended before the lock was acquired.
	Do(ctx context.Context, key string, f func(context.Context) error) error
	Close() error
}

// Reader is an Instance that also has locks for readers.
type Reader interface {
	DoShared(ctx context.Context, key string, f func(context.Context) error) error
}

// All returns all contenders by their groups, in each wllock first, limits last.
func All() []Contender {
	all := []Contender{wllockDefault()}
	all = append(all, redsyncs()...)
	all = append(all, redislocks()...)
	all = append(all, rueidislocks()...)
	all = append(all, javaAlgorithm(), Ping(), Ideal())
	all = of(OverRedis, InRedis, all...)
	all = append(all, of(OverRedlock, InRedlock, redlocks()...)...)
	all = append(all, of(OverZooKeeper, InZooKeeper, zookeepers()...)...)
	all = append(all, of(OverMySQL, InMariaDB, fenced(mariadbs())...)...)
	all = append(all, of(OverPostgres, InPostgres, fenced(postgreses())...)...)
	all = append(all, of(OverSQLite, InSQLite, fenced(sqlites())...)...)
	all = append(all, of(OverEtcd, InEtcd, fenced(etcds())...)...)
	all = append(all, backends()...)
	all = append(all, shops()...)
	return append(all, of(OverPermits, InRedis, permitHolders()...)...)
}

// Calls counts the top-level commands among all calls the server has counted.
func (c Contender) Calls(counted map[string]int64) int64 {
	var n int64
	for _, name := range c.Commands {
		n += counted[name]
		for sub, calls := range counted { // such as client|setinfo
			if strings.HasPrefix(sub, name+"|") {
				n += calls
			}
		}
	}
	return n
}

// newClient returns a go-redis client with a connection per goroutine, so that none waits for one.
func newClient(o Options) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: o.Addr, PoolSize: o.Workers, PoolTimeout: time.Minute, ReadTimeout: time.Minute, DisableIdentity: true,
	})
}

// cleanUp is the context of releases, which must not be canceled when the measurement ends.
var cleanUp = context.Background()

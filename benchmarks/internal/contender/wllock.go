package contender

import (
	"context"
	"errors"
	"slices"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/etcdlock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/distributed/redlock"
	"github.com/wllock/wllock/distributed/sqllock/mysql"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/distributed/sqllock/sqlite"
	"github.com/wllock/wllock/distributed/zklock"
)

const (
	// EveryTurn ends the name of a contender each of whose turns goes through the backend.
	EveryTurn = "-turns"
	// LongTenures ends the name of a contender with more hand-offs in a tenure than by default, which pays where a hand-over to
	// another instance is slow.
	LongTenures = "-1024"
)

const defaults = "all defaults (lease 5 s, renewed; at most 128 hand-offs or 100 ms per tenure)"

// ourCommands are those of wllock's clients of Redis.
var ourCommands = []string{"evalsha", "eval", "script", "subscribe", "unsubscribe", "ping", "hello", "client"}

func wllockDefault() Contender {
	return Contender{
		Name:     "wllock",
		Settings: "all defaults (lease 5 s, renewed; fences; at most 128 hand-offs or 100 ms per tenure)",
		Module:   "github.com/wllock/wllock",
		Commands: ourCommands,
		Open:     opener(overRedis),
	}
}

// ours returns wllock over a backend, with tenures and without.
func ours(name, settings string, commands []string, open openBackend) []Contender {
	tenures := Contender{
		Name: name, Settings: settings, Module: "github.com/wllock/wllock", Commands: commands, Open: opener(open),
	}
	turns := tenures
	turns.Name += EveryTurn
	turns.Settings = "MaxHandoffs 0: every turn goes through the backend"
	turns.Open = opener(open, wllock.WithMaxHandoffs(0))
	return []Contender{tenures, turns}
}

// longer returns ours and, after the first, the same with longer tenures.
func longer(all []Contender, open openBackend) []Contender {
	c := all[0]
	c.Name += LongTenures
	c.Settings = "MaxHandoffs 1024: tenures end by their time, 100 ms"
	c.Open = opener(open, wllock.WithMaxHandoffs(1024))
	return slices.Insert(all, 1, c)
}

// system is that of the Lockers.
const system = "bench"

// openBackend opens the backend of an instance, which owns it unless it is one that all share.
type openBackend func(o Options) (b distributed.Backend, shared bool, err error)

// overRedis opens a backend on one Redis server.
func overRedis(o Options) (distributed.Backend, bool, error) {
	b, err := redislock.Open("redis://" + o.Addr)
	return b, false, err
}

// overRedlock opens a backend on five Redis servers, which have just been flushed: without Vouch they would count only
// after the longest TTL.
func overRedlock(query string) openBackend {
	return func(o Options) (distributed.Backend, bool, error) {
		b, err := redlock.Open("redlock://" + o.Addr + query)
		if err != nil {
			return nil, false, err
		}
		err = b.Probe(context.Background(), distributed.Probe{Key: system + ":", TTL: distributed.MinTTL}) // so that it knows the system
		if err == nil {
			err = b.Vouch(context.Background())
		}
		if err != nil {
			return nil, false, errors.Join(err, b.Close())
		}
		return b, false, nil
	}
}

// overZooKeeper opens a backend on ZooKeeper.
func overZooKeeper(o Options) (distributed.Backend, bool, error) {
	b, err := zklock.Open("zk://" + o.Addr + "/wllock")
	return b, false, err
}

// overEtcd opens a backend on etcd.
func overEtcd(o Options) (distributed.Backend, bool, error) {
	b, err := etcdlock.Open("etcd://" + o.Addr + "/wllock")
	return b, false, err
}

// overMariaDB opens a backend in MariaDB, whose tables the first one creates.
func overMariaDB(o Options) (distributed.Backend, bool, error) {
	if err := mysql.Migrate(context.Background(), o.Addr); err != nil {
		return nil, false, err
	}
	b, err := mysql.Open(o.Addr)
	return b, false, err
}

// overPostgres opens a backend in PostgreSQL.
func overPostgres(o Options) (distributed.Backend, bool, error) {
	if err := postgres.Migrate(context.Background(), o.Addr); err != nil {
		return nil, false, err
	}
	b, err := postgres.Open(o.Addr)
	return b, false, err
}

// overSQLite opens a backend in a file.
func overSQLite(o Options) (distributed.Backend, bool, error) {
	b, err := sqlite.Open(o.Addr)
	return b, false, err
}

// inMemory takes the backend that the instances of a round share.
func inMemory(o Options) (distributed.Backend, bool, error) { return o.Memory, true, nil }

type ourLock struct{ locker *wllock.Locker }

// opener returns the Open of a contender that is wllock over a backend.
func opener(open openBackend, opts ...wllock.Option) func(Options) (Instance, error) {
	return func(o Options) (Instance, error) {
		backend, shared, err := open(o)
		if err != nil {
			return nil, err
		}
		all := slices.Concat(o.Locker, opts)
		if !shared {
			all = append(all, wllock.WithOwnedBackend())
		}
		locker, err := wllock.New(system, backend, all...)
		if err != nil {
			return nil, errors.Join(err, backend.Close())
		}
		return ourLock{locker}, nil
	}
}

func (l ourLock) Do(ctx context.Context, key string, f func(context.Context) error) error {
	return l.locker.Do(ctx, "key", key, f)
}

// DoShared implements Reader.
func (l ourLock) DoShared(ctx context.Context, key string, f func(context.Context) error) error {
	return l.locker.Do(ctx, "key", key, f, wllock.Shared())
}

func (l ourLock) Close() error { return l.locker.Close(context.Background()) }

package contender

import (
	"context"
	"errors"
	"slices"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/distributed/redlock"
	"github.com/wllock/wllock/distributed/zklock"
)

const (
	defaults  = "all defaults (lease 5 s, renewed; at most 128 hand-offs or 100 ms per tenure)"
	everyTurn = "-turns" // ends the name of a contender each of whose turns goes through the backend
)

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
	turns.Name += everyTurn
	turns.Settings = "MaxHandoffs 0: every turn goes through the backend"
	turns.Open = opener(open, wllock.WithMaxHandoffs(0))
	return []Contender{tenures, turns}
}

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
		if err := b.Vouch(context.Background()); err != nil {
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
		locker, err := wllock.New("bench", backend, all...)
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

package contender

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/benchmarks/internal/server"
)

// floors do the least that a lock must do in their scenarios. They renew nothing, and have no fences.
func floors() []Contender {
	return slices.Concat(
		onRedis.has(Floor, goredisModule, []string{"set", "lpush", "blpop"}, entry{"LPUSH+BLPOP",
			"a token in a list of Redis, handed over strictly first come, first served, each turn over Redis; one caller per instance " +
				"waits there, and the token goes back in one pipeline with its wait; no lease, no fences", openTurns}),
		onRedis.has(Floor, goredisModule, []string{"set", "del"},
			entry{"SET NX+DEL", "one SET NX with a TTL, one DEL, for keys without waiters; no renewal, no queue, no fences", openSetNX}),
		place{OverRedis, server.Memory, false}.has(Floor, "", nil,
			entry{"channel", "a token in a channel, all callers in one process, no service", openChannel}))
}

// turns hand a key's token over through a list, which it is in while the key is free.
type turns struct {
	client *redis.Client
	list   string
	gate   chan struct{} // of capacity 1, filled by the caller that goes to Redis: its senders queue, first come, first served
	queued atomic.Int32  // callers that send to the gate; each gets through
	known  bool          // guarded by the gate: an instance has made the token
	owed   bool          // guarded by the gate: the token is here, and goes back before another wait
}

func newTurns(client *redis.Client, list string) *turns {
	return &turns{client: client, list: list, gate: make(chan struct{}, 1)}
}

// patience is how long one wait for the token is, before it sees that its context has ended.
const patience = time.Second

func openTurns(o Options) (Instance, error) {
	all, end := clients(o)
	var keys sync.Map
	return lock(func(ctx context.Context, key string) (func() error, error) {
		v, ok := keys.Load(key)
		if !ok {
			v, _ = keys.LoadOrStore(key, newTurns(all[0], key+":token"))
		}
		t := v.(*turns)
		return t.give, t.take(ctx)
	}, end), nil
}

// take waits for the token, in the instance and then in Redis.
func (t *turns) take(ctx context.Context) error {
	t.queued.Add(1)
	t.gate <- struct{}{}
	t.queued.Add(-1)
	if !t.known { // the first of all instances makes the token, and owes it
		t.known, t.owed = true, t.client.SetArgs(cleanUp, t.list+":made", "", redis.SetArgs{Mode: "NX"}).Err() == nil
	}
	err := ctx.Err()
	for err == nil {
		if err = t.exchange(); err == nil {
			return nil
		}
		if errors.Is(err, redis.Nil) { // its patience is over
			err = ctx.Err()
		}
	}
	if t.owed {
		return errors.Join(err, t.give())
	}
	<-t.gate
	return err
}

// exchange puts the token back where it is owed, behind those that wait in Redis, and waits for it.
func (t *turns) exchange() error {
	_, err := t.client.Pipelined(cleanUp, func(p redis.Pipeliner) error {
		if t.owed {
			p.LPush(cleanUp, t.list, "")
		}
		p.BLPop(cleanUp, patience, t.list)
		return nil
	})
	t.owed = false
	return err
}

// give leaves the token to the next caller of the instance, who puts it back, or does so itself.
func (t *turns) give() (err error) {
	if t.owed = t.queued.Load() > 0; !t.owed {
		err = t.client.LPush(cleanUp, t.list, "").Err()
	}
	<-t.gate
	return err
}

// openSetNX fails where the key is held.
func openSetNX(o Options) (Instance, error) {
	all, end := clients(o)
	return lock(func(ctx context.Context, key string) (func() error, error) {
		return func() error { return all[0].Del(cleanUp, key).Err() },
			all[0].SetArgs(ctx, key, "1", redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
	}, end), nil
}

// openChannel has one token for all keys: its scenarios have one key.
func openChannel(Options) (Instance, error) {
	token := make(chan struct{}, 1)
	token <- struct{}{}
	release := func() error {
		token <- struct{}{}
		return nil
	}
	return lock(func(ctx context.Context, _ string) (func() error, error) {
		select { // either may win: a token that was not received is still there
		case <-token:
			return release, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}, nothing), nil
}

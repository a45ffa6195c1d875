package contender

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"
)

// javaAlgorithm is the algorithm of the published wllock (Java): a fair lock in the process, then SET NX in a loop without a
// pause; DEL on release, whatever the owner of the key is by then.
func javaAlgorithm() Contender {
	return Contender{
		Name:     "wllock-java",
		Settings: "its algorithm in Go: fair local lock, SET NX PX without a pause, DEL",
		Module:   "github.com/redis/go-redis/v9",
		Commands: []string{"set", "del"},
		Open: func(o Options) (Instance, error) {
			return &javaLock{client: newClient(o)}, nil
		},
		Role: Rival,
	}
}

type javaLock struct {
	client *redis.Client
	local  sync.Map // key to a channel of capacity 1, which holds a value while the key is locked here
}

// lockLocally takes the key within this instance. Senders of a full channel queue first come, first served.
func (l *javaLock) lockLocally(ctx context.Context, key string) (unlock func(), err error) {
	v, ok := l.local.Load(key)
	if !ok {
		v, _ = l.local.LoadOrStore(key, make(chan struct{}, 1))
	}
	gate := v.(chan struct{})
	select {
	case gate <- struct{}{}:
		return func() { <-gate }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *javaLock) Do(ctx context.Context, key string, f func(context.Context) error) error {
	unlock, err := l.lockLocally(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	for {
		err := l.client.SetArgs(ctx, key, "1", redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
		if err == nil {
			break
		}
		if !errors.Is(err, redis.Nil) || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	return errors.Join(f(ctx), l.client.Del(cleanUp, key).Err())
}

func (l *javaLock) Close() error { return l.client.Close() }

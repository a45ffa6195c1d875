package contender

import (
	"context"
	"errors"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redislock"
)

func wllockDefault() Contender {
	return Contender{
		Name:     "wllock",
		Settings: "all defaults (lease 5 s, renewed; fences; at most 128 hand-offs or 100 ms per tenure)",
		Module:   "github.com/wllock/wllock",
		Commands: []string{"evalsha", "eval", "script", "subscribe", "unsubscribe", "ping", "hello", "client"},
		Open:     openWllock,
	}
}

type ourLock struct {
	locker  *wllock.Locker
	backend *redislock.Backend
}

func openWllock(o Options) (Instance, error) {
	backend, err := redislock.Open("redis://" + o.Addr)
	if err != nil {
		return nil, err
	}
	locker, err := wllock.New("bench", backend, o.Locker...)
	if err != nil {
		return nil, errors.Join(err, backend.Close())
	}
	return ourLock{locker: locker, backend: backend}, nil
}

func (l ourLock) Do(ctx context.Context, key string, f func(context.Context) error) error {
	return l.locker.Do(ctx, "key", key, f)
}

func (l ourLock) Close() error {
	return errors.Join(l.locker.Close(context.Background()), l.backend.Close())
}

package contender

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsyncs are redsync with several delays between tries; its own default is 50 to 250 ms, at random, and 32 tries.
func redsyncs() []Contender {
	var all []Contender
	for _, delay := range pauses {
		all = append(all, Contender{
			Name:     "redsync-" + delay.String(),
			Settings: "retry delay " + delay.String() + ", tries without limit",
			Setting:  delay.String(),
			Module:   "github.com/go-redsync/redsync/v4",
			Commands: []string{"set", "evalsha", "eval"},
			Open:     func(o Options) (Instance, error) { return openRedsync(o, delay), nil },
			Role:     Rival,
		})
	}
	return tuned("redsync", "retry delay the best of 1, 5, 10, 20 and 100 ms, tries without limit", all...)
}

type redsyncLock struct {
	clients []*redis.Client
	sync    *redsync.Redsync
	delay   time.Duration
}

// openRedsync opens redsync on one server or several.
func openRedsync(o Options, delay time.Duration) Instance {
	clients := newClients(o)
	pools := make([]pool.Pool, len(clients))
	for i, c := range clients {
		pools[i] = goredis.NewPool(c)
	}
	return redsyncLock{clients: clients, sync: redsync.New(pools...), delay: delay}
}

func (l redsyncLock) Do(ctx context.Context, key string, f func(context.Context) error) error {
	m := l.sync.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt), redsync.WithRetryDelay(l.delay))
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	err := f(ctx)
	_, unlockErr := m.UnlockContext(cleanUp)
	return errors.Join(err, unlockErr)
}

func (l redsyncLock) Close() error { return closeClients(l.clients) }

package contender

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
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
	client *redis.Client
	sync   *redsync.Redsync
	delay  time.Duration
}

func openRedsync(o Options, delay time.Duration) Instance {
	client := newClient(o)
	return redsyncLock{client: client, sync: redsync.New(goredis.NewPool(client)), delay: delay}
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

func (l redsyncLock) Close() error { return l.client.Close() }

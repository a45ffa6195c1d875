package contender

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// redislocks are bsm/redislock with several pauses between tries; its default is not to try again.
func redislocks() []Contender {
	best := newRedislock("redislock", 10*time.Millisecond)
	best.Settings += " (1, 5, 20 and 100 ms tried too)"
	return append([]Contender{best}, asVariants([]Contender{
		newRedislock("redislock-5ms", 5*time.Millisecond),
		newRedislock("redislock-1ms", time.Millisecond),
		newRedislock("redislock-20ms", 20*time.Millisecond),
		newRedislock("redislock-100ms", 100*time.Millisecond),
	})...)
}

func newRedislock(name string, pause time.Duration) Contender {
	return Contender{
		Name:     name,
		Settings: "LinearBackoff " + pause.String(),
		Module:   "github.com/bsm/redislock",
		Commands: []string{"evalsha", "eval"},
		Open: func(o Options) (Instance, error) {
			client := newClient(o)
			options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(pause)}
			return bsmLock{redis: client, client: redislock.New(client), options: options}, nil
		},
		Role: Rival,
	}
}

type bsmLock struct {
	redis   *redis.Client
	client  *redislock.Client
	options *redislock.Options
}

func (l bsmLock) Do(ctx context.Context, key string, f func(context.Context) error) error {
	lock, err := l.client.Obtain(ctx, key, ttl, l.options)
	if err != nil {
		return err
	}
	return errors.Join(f(ctx), lock.Release(cleanUp))
}

func (l bsmLock) Close() error { return l.redis.Close() }

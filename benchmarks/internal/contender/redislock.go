package contender

import (
	"context"
	"errors"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// redislocks are bsm/redislock with several pauses between tries; its default is not to try again.
func redislocks() []Contender {
	var all []Contender
	for _, pause := range pauses {
		all = append(all, Contender{
			Name:     "redislock-" + pause.String(),
			Settings: "LinearBackoff " + pause.String(),
			Setting:  pause.String(),
			Module:   "github.com/bsm/redislock",
			Commands: []string{"evalsha", "eval"},
			Open: func(o Options) (Instance, error) {
				client := newClient(o)
				options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(pause)}
				return bsmLock{redis: client, client: redislock.New(client), options: options}, nil
			},
			Role: Rival,
		})
	}
	return tuned("redislock", "LinearBackoff, the best of 1, 5, 10, 20 and 100 ms", all...)
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

package contender

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Ping sends one PING per call and locks nothing: the cost of a round trip, and the maximum rate of the machine.
func Ping() Contender {
	return Contender{
		Name:     "PING",
		Settings: "one command per call, no lock",
		Module:   "github.com/redis/go-redis/v9",
		Commands: []string{"ping"},
		Open:     func(o Options) (Instance, error) { return pinger{newClient(o)}, nil },
		Role:     Limit,
	}
}

type pinger struct{ client *redis.Client }

func (p pinger) Do(ctx context.Context, _ string, f func(context.Context) error) error {
	if err := p.client.Ping(ctx).Err(); err != nil {
		return err
	}
	return f(ctx)
}

func (p pinger) Close() error { return p.client.Close() }

// Ideal just calls the function, from one goroutine: the rate of a lock that costs nothing.
func Ideal() Contender {
	return Contender{
		Name:     "ideal",
		Settings: "one goroutine, the same work one after the other, no lock",
		Open:     func(Options) (Instance, error) { return ideal{}, nil },
		Role:     Limit,
	}
}

type ideal struct{}

func (ideal) Do(ctx context.Context, _ string, f func(context.Context) error) error { return f(ctx) }

func (ideal) Close() error { return nil }

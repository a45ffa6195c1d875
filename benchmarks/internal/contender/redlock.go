package contender

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// redlocks are those that ask a majority of several Redis servers.
func redlocks() []Contender {
	all := ours("wllock", defaults, ourCommands, overRedlock(""))
	all = append(all, redsyncs()...)
	return append(all, pingMajority())
}

// newClients returns a client for each server of o.Addr.
func newClients(o Options) []*redis.Client {
	var all []*redis.Client
	for addr := range strings.SplitSeq(o.Addr, ",") {
		one := o
		one.Addr = addr
		all = append(all, newClient(one))
	}
	return all
}

func closeClients(all []*redis.Client) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// pingMajority sends a PING to each server at the same time and waits for a majority: a round trip of Redlock.
func pingMajority() Contender {
	return Contender{
		Name:     "PING",
		Settings: "one command to each server per call, of which a majority is awaited; no lock",
		Module:   "github.com/redis/go-redis/v9",
		Commands: []string{"ping"},
		Open:     func(o Options) (Instance, error) { return majorityPinger{newClients(o)}, nil },
		Role:     Limit,
	}
}

type majorityPinger struct{ clients []*redis.Client }

func (p majorityPinger) Do(ctx context.Context, _ string, f func(context.Context) error) error {
	answers := make(chan error, len(p.clients)) // so that late ones do not stay behind
	for _, c := range p.clients {
		go func() { answers <- c.Ping(ctx).Err() }()
	}
	for range len(p.clients)/2 + 1 {
		if err := <-answers; err != nil {
			return err
		}
	}
	return f(ctx)
}

func (p majorityPinger) Close() error { return closeClients(p.clients) }

// Package redislimit counts requests in Redis, for all processes together (GCRA, by redis_rate).
//
//	limiter := redislimit.New(client, redislimit.WithPrefix("wllock:shop:limit:"), redislimit.WithLogger(slog.Default()))
//	defer limiter.Close()
//	if err := limiter.Ping(ctx); err != nil {
//		log.Fatal(err)
//	}
//	limits := ratelimit.New(limiter, rules)
//
// Services with the same prefix and policy name on one Redis share the quotas, so put your system's name into the prefix.
//
// Each charge is one round trip. Every key begins with the prefix and expires: PREFIX{ID} when the quota is full again, and
// PREFIX{ID}:REQUEST, which marks a charged request, after Policy.RetryMemory. Identities and ids are hashed.
//
// Take fails if it has no answer after 250 ms. It fails with ratelimit.ErrRefused if Redis answers that it will not count.
package redislimit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/wllock/wllock/middleware/ratelimit"
)

// answerWait bounds a Take: many times a round trip, and short compared with the wait for a lock.
const answerWait = 250 * time.Millisecond

// Limiter is a ratelimit.Limiter that counts in Redis.
type Limiter struct {
	client redis.UniversalClient
	own    bool // Close closes client
	prefix string

	failures failures

	once   sync.Once
	script *redis.Script // set in once
}

// New returns a Limiter that counts in the server, sentinel group, cluster or ring that client is connected to. It opens connections of its own
// with the client's settings, except timeouts and hooks. Close closes these connections, and not the client. A sentinel client must stay open,
// because it finds the primary. A client of any other type is used directly and not closed: it should have MaxRetries -1 and
// ContextTimeoutEnabled. New panics on invalid arguments.
func New(client redis.UniversalClient, opts ...Option) *Limiter {
	if client == nil {
		panic("redislimit: New(nil): want a client")
	}
	l := &Limiter{prefix: DefaultPrefix, failures: failures{log: slog.New(slog.DiscardHandler), counter: noop.Int64Counter{}}}
	for _, o := range opts {
		if o == nil {
			panic("redislimit: New: an option is nil")
		}
		o(l)
	}
	l.client, l.own = derive(client)
	return l
}

// Close closes the connections that New has opened. After that, Take fails.
func (l *Limiter) Close() error {
	if !l.own {
		return nil
	}
	return l.client.Close()
}

// Take implements ratelimit.Limiter. It also charges a client that disconnects. Otherwise a client could evade the limit by disconnecting,
// because a handler need not notice that.
func (l *Limiter) Take(ctx context.Context, p ratelimit.Policy, id, request string) (ratelimit.Result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWait)
	defer cancel()
	r, err := l.charge(ctx, p, id, request, p.RetryMemory(), (*redis.Script).Run)
	if err != nil {
		err = l.sorted("charge", err)
	}
	l.failures.note(ctx, err)
	return r, err
}

func (l *Limiter) charge(ctx context.Context, p ratelimit.Policy, id, request string, memory time.Duration, run runner) (ratelimit.Result, error) {
	keys := []string{l.key(id)}
	if request != "" {
		keys = append(keys, keys[0]+":"+request)
	}
	r, err := redis_rate.NewLimiter(charging{l.client, l.around, run, keys, memory}).
		AllowN(ctx, id, redis_rate.Limit{Rate: p.Quota, Period: p.Window, Burst: p.AtOnce()}, 1)
	if err != nil {
		return ratelimit.Result{}, err
	}
	return ratelimit.Result{Allowed: r.Allowed > 0, Remaining: r.Remaining,
		RetryAfter: max(r.RetryAfter, 0), ResetAfter: r.ResetAfter}, nil
}

// key is that of an identity's state. In a cluster, all keys of an identity are on one node.
func (l *Limiter) key(id string) string { return l.prefix + "{" + id + "}" }

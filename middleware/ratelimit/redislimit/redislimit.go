// Package redislimit counts requests in Redis, for all processes together (GCRA, by redis_rate).
//
//	limiter := redislimit.New(client, redislimit.WithPrefix("wllock:shop:limit:"))
//	defer limiter.Close()
//	limits := ratelimit.New(limiter, rules)
//
// Services with the same prefix and policy name on one Redis share the quotas, so put your system's name into the prefix.
//
// Each charge is one round trip. Every key begins with the prefix and expires by itself: PREFIX{ID} when the quota is full
// again, and PREFIX{ID}:REQUEST, which marks a charged request, after Policy.RetryMemory. Identities and ids are hashed.
//
// Take fails if it has no answer after 250 ms.
package redislimit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/middleware/ratelimit"
)

// answerWait bounds a Take: many times a round trip, and short compared with the wait for a lock.
const answerWait = 250 * time.Millisecond

// Limiter implements ratelimit.Limiter.
type Limiter struct {
	client redis.UniversalClient
	own    bool // Close closes client
	prefix string

	once   sync.Once
	script *redis.Script // set in once
}

// New returns a Limiter that counts in the server, sentinel group, cluster or ring that client is connected to. It opens
// connections of its own with the client's settings, except timeouts and hooks. Close closes them and leaves the client alone.
// A sentinel client must stay open, because it finds the primary. A client of any other type is used directly and not closed:
// it should have MaxRetries -1 and ContextTimeoutEnabled. New panics on invalid arguments.
func New(client redis.UniversalClient, opts ...Option) *Limiter {
	if client == nil {
		panic("redislimit: New(nil): want a client")
	}
	l := &Limiter{prefix: DefaultPrefix}
	for _, o := range opts {
		if o == nil {
			panic("redislimit: New: an option is nil")
		}
		o(l)
	}
	l.client, l.own = derive(client)
	return l
}

// Close closes the connections that New has opened. Take fails afterwards.
func (l *Limiter) Close() error {
	if !l.own {
		return nil
	}
	return l.client.Close()
}

// Take implements ratelimit.Limiter. A client that disconnects is still charged. Otherwise disconnecting would evade the limit,
// because a handler need not notice.
func (l *Limiter) Take(ctx context.Context, p ratelimit.Policy, id, request string) (ratelimit.Result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWait)
	defer cancel()
	keys := []string{l.prefix + "{" + id + "}"} // in a cluster, all keys of an id are on one node
	if request != "" {
		keys = append(keys, keys[0]+":"+request)
	}
	r, err := redis_rate.NewLimiter(charging{l.client, l.around, keys, p.RetryMemory()}).
		AllowN(ctx, id, redis_rate.Limit{Rate: p.Quota, Period: p.Window, Burst: p.AtOnce()}, 1)
	if err != nil {
		return ratelimit.Result{}, fmt.Errorf("redislimit: charge: %w", err)
	}
	return ratelimit.Result{Allowed: r.Allowed > 0, Remaining: r.Remaining,
		RetryAfter: max(r.RetryAfter, 0), ResetAfter: r.ResetAfter}, nil
}

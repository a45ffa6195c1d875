// Package redislimit counts requests in Redis, for all processes together (GCRA, by redis_rate).
//
//	limiter := redislimit.New(client)
//	defer limiter.Close()
//	limits := ratelimit.New(limiter, rules)
//
// Each charge is one round trip. Every key that is made expires by itself: rate:{ID} when the quota is full again,
// ratepaid:{ID}:REQUEST, which notes a request that was charged, after Policy.RetryMemory. Identities and ids are hashed.
//
// Nobody is held up for longer than 250 ms: a Take that has no answer by then has failed.
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

// answerWait bounds a Take: it is many times a round trip, and little beside the wait for a lock.
const answerWait = 250 * time.Millisecond

// Limiter implements ratelimit.Limiter.
type Limiter struct {
	client redis.UniversalClient
	own    bool // client is ours to close
	rate   *redis_rate.Limiter

	once   sync.Once
	script *redis.Script // set in once
}

// New returns a Limiter that counts in the server, sentinel group, cluster or ring that client is connected to. It takes
// the client's settings, but neither its time-outs nor its hooks, for connections of its own, which Close closes, and
// leaves the client alone; of a sentinel client the original must stay open, for it finds the primary. A client of any
// other type is used as it is, and not closed: it should have MaxRetries -1 and ContextTimeoutEnabled.
func New(client redis.UniversalClient) *Limiter {
	client, own := derive(client)
	return &Limiter{client: client, own: own, rate: redis_rate.NewLimiter(client)}
}

// Close closes the connections that New has made. A Take after it fails.
func (l *Limiter) Close() error {
	if !l.own {
		return nil
	}
	return l.client.Close()
}

// Take implements ratelimit.Limiter. Who leaves meanwhile is charged all the same: else a limit could be passed by
// leaving, for a handler need not notice.
func (l *Limiter) Take(ctx context.Context, p ratelimit.Policy, id, request string) (ratelimit.Result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWait)
	defer cancel()
	id = "{" + id + "}" // so that in a cluster its keys are on one node
	rate := l.rate
	if request != "" {
		rate = redis_rate.NewLimiter(noting{l.client, l.around, "ratepaid:" + id + ":" + request, p.RetryMemory()})
	}
	r, err := rate.AllowN(ctx, id, redis_rate.Limit{Rate: p.Quota, Period: p.Window, Burst: p.AtOnce()}, 1)
	if err != nil {
		return ratelimit.Result{}, fmt.Errorf("redislimit: charge: %w", err)
	}
	return ratelimit.Result{Allowed: r.Allowed > 0, Remaining: r.Remaining,
		RetryAfter: max(r.RetryAfter, 0), ResetAfter: r.ResetAfter}, nil
}

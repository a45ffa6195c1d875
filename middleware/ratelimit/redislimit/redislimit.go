// Package redislimit counts requests in Redis, for all processes together (GCRA, by redis_rate).
//
//	limits := ratelimit.New(redislimit.New(client), rules)
//
// Each charge is one round trip; one with a request id is two, for the id is noted first. Every key that is made expires
// by itself: rate:ID when the quota is full again, ratepaid:ID:REQUEST after Policy.RetryMemory. Identities and ids are
// hashed.
//
// Give it a client with MaxRetries -1 and ContextTimeoutEnabled. By default go-redis repeats commands whose reply was
// lost, and so would charge twice; and it waits for its own time-outs of seconds, however short ours is.
package redislimit

import (
	"context"
	"fmt"
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
	rate   *redis_rate.Limiter
}

// New returns a Limiter that counts with client, which it does not close.
func New(client redis.UniversalClient) *Limiter {
	return &Limiter{client: client, rate: redis_rate.NewLimiter(client)}
}

// Take implements ratelimit.Limiter.
func (l *Limiter) Take(ctx context.Context, p ratelimit.Policy, id, request string) (ratelimit.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	if request == "" {
		return l.charge(ctx, p, id, 1)
	}
	note := "ratepaid:" + id + ":" + request
	first, err := l.note(ctx, p, note)
	if err != nil {
		return ratelimit.Result{}, err
	}
	if !first {
		return l.again(ctx, p, id, note)
	}
	r, err := l.charge(ctx, p, id, 1)
	if err == nil && !r.Allowed { // not charged, so the next one is
		err = wrap("forget the request", l.client.Del(ctx, note).Err())
	}
	return r, err
}

// note remembers a request before it is charged, so that of two that come at once only one is.
func (l *Limiter) note(ctx context.Context, p ratelimit.Policy, note string) (first bool, err error) {
	err = l.client.SetArgs(ctx, note, "", redis.SetArgs{Mode: "NX", TTL: p.RetryMemory()}).Err()
	if err == redis.Nil {
		return false, nil
	}
	return err == nil, wrap("note the request", err)
}

// again lets a request pass that was charged, unless another retry has used that up in the meantime.
func (l *Limiter) again(ctx context.Context, p ratelimit.Policy, id, note string) (ratelimit.Result, error) {
	free, err := l.client.Del(ctx, note).Result()
	if err != nil {
		return ratelimit.Result{}, wrap("use up the retry", err)
	}
	if free == 0 {
		return l.charge(ctx, p, id, 1)
	}
	r, err := l.charge(ctx, p, id, 0) // to know how it stands
	r.Allowed, r.RetryAfter = true, 0
	return r, err
}

func (l *Limiter) charge(ctx context.Context, p ratelimit.Policy, id string, n int) (ratelimit.Result, error) {
	r, err := l.rate.AllowN(ctx, id, redis_rate.Limit{Rate: p.Quota, Period: p.Window, Burst: p.AtOnce()}, n)
	if err != nil {
		return ratelimit.Result{}, wrap("charge", err)
	}
	return ratelimit.Result{Allowed: r.Allowed >= n, Remaining: r.Remaining,
		RetryAfter: max(r.RetryAfter, 0), ResetAfter: r.ResetAfter}, nil
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redislimit: %s: %w", what, err)
}

package ratelimit

import (
	"container/list"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// DefaultIdentities is the maximum number of identities that a Local remembers, in about 50 MB.
	DefaultIdentities = 100_000
	// paidMemory is how many charged requests of an identity are remembered: a caller rarely has more in flight.
	paidMemory = 16
	// sweep is how many idle identities each request removes at most: more than one, so that their number falls.
	sweep = 2
)

// Local is a Limiter that counts in this process. It forgets identities that have their full quota again and, if there are too many, the least
// recently seen.
type Local struct {
	max int

	mu      sync.Mutex // guards all below
	buckets map[string]*list.Element
	recent  *list.List // of *bucket, the most recently seen in front
}

// bucket is the state of an identity.
type bucket struct {
	id      string
	limiter *rate.Limiter
	idle    time.Time // from then on there is nothing to remember
	paid    []paid    // requests that may be retried once, the latest last
}

// paid is a request that was charged.
type paid struct {
	request string
	until   time.Time // it may be retried
}

// LocalOption configures a Local.
type LocalOption func(*Local)

// WithIdentities sets the maximum number of identities that are remembered (default [DefaultIdentities], at least 1).
func WithIdentities(n int) LocalOption { return func(l *Local) { l.max = max(n, 1) } }

// NewLocal returns a Limiter that counts in memory. It panics on a nil option.
func NewLocal(opts ...LocalOption) *Local {
	l := &Local{max: DefaultIdentities, buckets: map[string]*list.Element{}, recent: list.New()}
	for _, o := range opts {
		if o == nil {
			panic("ratelimit: NewLocal: an option is nil")
		}
		o(l)
	}
	return l
}

// Take implements Limiter.
func (l *Local) Take(_ context.Context, p Policy, id, request string) (Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	b := l.bucket(p, id)
	r := b.take(p, request, now)
	b.idle = now.Add(max(r.ResetAfter, p.RetryMemory()))
	l.forget(now)
	return r, nil
}

// bucket returns the bucket of id and marks it as the most recently seen. The caller holds mu.
func (l *Local) bucket(p Policy, id string) *bucket {
	if e, ok := l.buckets[id]; ok {
		l.recent.MoveToFront(e)
		return e.Value.(*bucket)
	}
	b := &bucket{id: id, limiter: rate.NewLimiter(perSecond(p), p.AtOnce())}
	l.buckets[id] = l.recent.PushFront(b)
	return b
}

// forget removes identities that are idle or too many, but never the most recently seen. The caller holds mu.
func (l *Local) forget(now time.Time) {
	for range sweep {
		last := l.recent.Back()
		b := last.Value.(*bucket)
		if len(l.buckets) <= l.max && now.Before(b.idle) {
			return
		}
		l.recent.Remove(last)
		delete(l.buckets, b.id)
	}
}

// take charges a request, unless it is the retry of a charged one.
func (b *bucket) take(p Policy, request string, now time.Time) Result {
	b.limiter.SetLimitAt(now, perSecond(p)) // the policy may be another one than before
	b.limiter.SetBurstAt(now, p.AtOnce())
	b.paid = slices.DeleteFunc(b.paid, func(r paid) bool { return !now.Before(r.until) })
	var r Result
	if at := slices.IndexFunc(b.paid, func(r paid) bool { return r.request == request }); at >= 0 {
		b.paid = slices.Delete(b.paid, at, at+1)
		r.Allowed = true
	} else if r.Allowed = b.limiter.AllowN(now, 1); r.Allowed && request != "" {
		if len(b.paid) == paidMemory {
			b.paid = slices.Delete(b.paid, 0, 1)
		}
		b.paid = append(b.paid, paid{request, now.Add(p.RetryMemory())})
	}
	left := b.limiter.TokensAt(now)
	r.Remaining = int(math.Floor(max(left, 0)))
	r.ResetAfter = duration(refill(p, float64(p.AtOnce())-left))
	if !r.Allowed {
		r.RetryAfter = duration(refill(p, 1-left))
	}
	return r
}

func perSecond(p Policy) rate.Limit { return rate.Limit(float64(p.Quota) / p.Window.Seconds()) }

// refill returns after how many seconds n more requests are allowed.
func refill(p Policy, n float64) float64 { return max(n, 0) / float64(perSecond(p)) }

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

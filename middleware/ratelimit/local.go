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
	// DefaultIdentities is how many identities a Local remembers: some 50 MB of them.
	DefaultIdentities = 100_000
	// paidMemory is how many charged requests are remembered of an identity: a caller has not many more under way.
	paidMemory = 16
	// sweep is how many idle identities each request clears away at most: more than one, so that they get fewer.
	sweep = 2
)

// Local counts in this process. Identities that have their full quota again are forgotten, and when there are too many,
// those that have not been seen for the longest time.
type Local struct {
	max int

	mu      sync.Mutex // guards all below
	buckets map[string]*list.Element
	recent  *list.List // of *bucket, the one last seen in front
}

// bucket is what is left to an identity.
type bucket struct {
	id      string
	limiter *rate.Limiter
	idle    time.Time // from when on there is nothing to remember
	paid    []string  // requests that may come again once, the latest last
}

// LocalOption changes a Local.
type LocalOption func(*Local)

// WithIdentities sets how many identities are remembered at most [DefaultIdentities].
func WithIdentities(n int) LocalOption { return func(l *Local) { l.max = max(n, 1) } }

// NewLocal returns a Limiter that counts in memory.
func NewLocal(opts ...LocalOption) *Local {
	l := &Local{max: DefaultIdentities, buckets: map[string]*list.Element{}, recent: list.New()}
	for _, o := range opts {
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

// bucket returns that of id, as the one last seen. The caller holds mu.
func (l *Local) bucket(p Policy, id string) *bucket {
	if e, ok := l.buckets[id]; ok {
		l.recent.MoveToFront(e)
		return e.Value.(*bucket)
	}
	b := &bucket{id: id, limiter: rate.NewLimiter(perSecond(p), p.AtOnce())}
	l.buckets[id] = l.recent.PushFront(b)
	return b
}

// forget lets go of identities that are idle or too many, but never of the one last seen. The caller holds mu.
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

// take charges a request, unless it is a retry of one that was charged.
func (b *bucket) take(p Policy, request string, now time.Time) Result {
	var r Result
	if at := slices.Index(b.paid, request); at >= 0 {
		b.paid = slices.Delete(b.paid, at, at+1)
		r.Allowed = true
	} else if r.Allowed = b.limiter.AllowN(now, 1); r.Allowed && request != "" {
		if len(b.paid) == paidMemory {
			b.paid = slices.Delete(b.paid, 0, 1)
		}
		b.paid = append(b.paid, request)
	}
	left := b.limiter.TokensAt(now)
	r.Remaining = int(math.Floor(max(left, 0)))
	r.ResetAfter = refill(p, float64(p.AtOnce())-left)
	if !r.Allowed {
		r.RetryAfter = refill(p, 1-left)
	}
	return r
}

func perSecond(p Policy) rate.Limit { return rate.Limit(float64(p.Quota) / p.Window.Seconds()) }

// refill is how long it takes until so many more are allowed.
func refill(p Policy, n float64) time.Duration {
	return time.Duration(max(n, 0) / float64(perSecond(p)) * float64(time.Second))
}

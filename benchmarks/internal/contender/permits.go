package contender

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/wllock/wllock"
)

// Permits is how many callers may be inside at a time, in the group about that.
const Permits = 8

// permitHolders admit up to Permits callers at a time.
func permitHolders() []Contender {
	rival := func(name, settings string, choose func(*subKeys) int) Contender {
		c := wllockDefault()
		c.Name, c.Settings, c.Role = name, settings, Rival
		open := c.Open
		c.Open = func(o Options) (Instance, error) {
			in, err := open(o)
			if err != nil {
				return nil, err
			}
			s := &subKeys{ourLock: in.(ourLock)}
			s.choose = func() int { return choose(s) }
			return s, nil
		}
		return c
	}
	ours := wllockDefault()
	ours.Name, ours.Settings = "permits", "Permits(8), all defaults: a lease and a fence for each holder"
	open := ours.Open
	ours.Open = func(o Options) (Instance, error) {
		in, err := open(o)
		if err != nil {
			return nil, err
		}
		return permitted{in.(ourLock)}, nil
	}
	return []Contender{
		ours,
		rival("sub-keys", "an exclusive lock on one of 8 keys, chosen at random", (*subKeys).random),
		rival("sub-keys-short", "an exclusive lock on that of 8 keys for which fewest callers of the instance wait", (*subKeys).shortest),
		{
			Name: "x/sync", Module: "golang.org/x/sync", Settings: "semaphore.Weighted, all callers in one process, no service", Role: Limit,
			Open: func(Options) (Instance, error) { return weighted{semaphore.NewWeighted(Permits)}, nil },
		},
	}
}

// permitted is a lock with permits.
type permitted struct{ ourLock }

func (p permitted) Do(ctx context.Context, key string, f func(context.Context) error) error {
	return p.locker.Do(ctx, "key", key, f, wllock.Permits(Permits))
}

// subKeys stand for permits: each has one holder.
type subKeys struct {
	ourLock
	choose func() int
	mu     sync.Mutex
	here   [Permits]atomic.Int32 // callers of the instance that hold or wait
}

func (s *subKeys) Do(ctx context.Context, key string, f func(context.Context) error) error {
	i := s.choose()
	defer s.here[i].Add(-1)
	return s.ourLock.Do(ctx, key+":"+strconv.Itoa(i), f)
}

func (s *subKeys) random() int {
	i := rand.N(Permits)
	s.here[i].Add(1)
	return i
}

// shortest begins to look somewhere, so that keys with as many callers are chosen alike.
func (s *subKeys) shortest() int {
	s.mu.Lock() // one looks at a time, otherwise several choose the same
	defer s.mu.Unlock()
	best := rand.N(Permits)
	for i := range Permits {
		if s.here[i].Load() < s.here[best].Load() {
			best = i
		}
	}
	s.here[best].Add(1)
	return best
}

// weighted is the limit.
type weighted struct{ *semaphore.Weighted }

func (w weighted) Do(ctx context.Context, _ string, f func(context.Context) error) error {
	if err := w.Acquire(ctx, 1); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	defer w.Release(1)
	return f(ctx)
}

func (weighted) Close() error { return nil }

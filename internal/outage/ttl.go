package outage

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

const (
	// noteEvery is how often a TTL is noted at the backend, as distributed.TTLRegistry wants it.
	noteEvery = time.Minute
	// learnEvery is how often a LocalOnly does so, since it wants to know the others' as they are now.
	learnEvery = time.Second
)

// ttls tells the backend of this Locker's TTL, and learns the longest one in use (rule O4).
type ttls struct {
	registry distributed.TTLRegistry // nil: the backend has none
	system   string
	own      time.Duration
	given    time.Duration // Config.Longest
	every    time.Duration
	learned  atomic.Int64 // 0: nothing yet
	noted    atomic.Bool  // before the first Enter
}

func (t *ttls) init(c Config, every time.Duration) {
	t.registry, _ = c.Backend.(distributed.TTLRegistry)
	t.system, t.own, t.given, t.every = c.System, c.TTL, c.Longest, every
}

// longest is the longest TTL in use, as far as is known.
func (t *ttls) longest() time.Duration { return max(t.own, t.given, time.Duration(t.learned.Load())) }

// ask notes the TTL and learns the longest.
func (t *ttls) ask(ctx context.Context) error {
	longest, err := t.registry.LongestTTL(ctx, t.system, t.own)
	if err == nil {
		t.learned.Store(int64(longest))
	}
	return err
}

// NoteTTL notes at the backend that the system has a lease that may last for d, and learns the longest.
func (p *policy) NoteTTL(ctx context.Context, d time.Duration) error {
	if p.ttls.registry == nil {
		return nil
	}
	longest, err := p.ttls.registry.LongestTTL(ctx, p.ttls.system, d)
	if err == nil {
		p.ttls.learned.Store(int64(longest))
	}
	if errors.Is(err, distributed.ErrRefused) { // Enter finds out what is wrong
		return nil
	}
	return err
}

// note notes the TTL before the first Enter, and from then on again and again. If that fails, Enter finds out what is wrong;
// a backend that refuses the note may still grant leases.
func (p *policy) note(ctx context.Context) {
	if p.ttls.registry == nil || p.ttls.noted.Load() {
		return
	}
	if err := p.ttls.ask(ctx); err == nil || errors.Is(err, distributed.ErrRefused) {
		p.ttls.noted.Store(true)
		p.startNoting(p.ttls.every)
	}
}

// startNoting notes the TTL after d and from then on again and again, unless that has begun already.
func (p *policy) startNoting(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.noting == nil {
		p.noteAfter(d)
	}
}

// noteAfter notes the TTL after d, and so on. The caller holds mu.
func (p *policy) noteAfter(d time.Duration) {
	if p.stopped {
		return
	}
	p.noting = time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.background(p.noteAgain)
	})
}

func (p *policy) noteAgain() {
	if p.judge.current.Load() == nil {
		ctx, cancel := context.WithTimeout(p.ctx, p.ttls.own)
		defer cancel()
		if p.ttls.ask(ctx) == nil { // else it is asked again
			p.ttls.noted.Store(true)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteAfter(p.ttls.every)
}

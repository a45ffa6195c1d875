package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/keyless"
)

var (
	errUnreadable = conn.Refusal(keyless.Errorf("the server's answer cannot be read"))
	errLate       = keyless.Errorf("no answer in time")
)

// poll is one question to all servers, and what their answers decide (rule Q1).
type poll struct {
	b     *Backend
	what  string
	sent  time.Time
	heard func(*ask)         // called with each answer, without mu; nil: nothing
	count func(*ask) verdict // counts one answer, with mu held
	then  func(*poll)        // called with the verdict before decided is closed, without mu; nil: nothing

	mu       sync.Mutex
	replies  []string // guarded by mu; by server, as errs
	errs     []error  // guarded by mu
	answered int      // guarded by mu
	verdict  verdict  // guarded by mu until decided is closed
	decided  chan struct{}
}

func (b *Backend) poll(what string, count func(*ask) verdict) *poll {
	n := len(b.nodes)
	return &poll{b: b, what: what, sent: time.Now(), count: count, replies: make([]string, n), errs: make([]error, n), decided: make(chan struct{})}
}

// gather is a poll that waits for a majority of answers.
func (b *Backend) gather(what string) *poll {
	answered, failed := 0, 0
	return b.poll(what, func(k *ask) verdict {
		if k.Err == nil {
			answered++
		} else {
			failed++
		}
		switch {
		case answered >= b.quorum:
			return granted
		case failed > len(b.nodes)-b.quorum:
			return unavailable
		}
		return pending
	})
}

// done takes one answer.
func (p *poll) done(k *ask) {
	if p.heard != nil {
		p.heard(k)
	}
	p.mu.Lock()
	if p.errs[k.node.index] = k.Err; k.Err == nil {
		p.answered++
		p.replies[k.node.index] = k.Reply
	}
	v, was := p.count(k), p.verdict
	if was == pending {
		p.verdict = v
	}
	var err error
	if v == unavailable && p.answered < p.b.quorum { // else a majority is there
		err = p.b.failures(p.errs)
	}
	p.mu.Unlock()
	if was != pending || v == pending {
		return
	}
	p.b.exchanged(p.what, p.sent, err)
	if p.then != nil {
		p.then(p)
	}
	close(p.decided)
}

// failure says why no majority has decided.
func (p *poll) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	errs := slices.Clone(p.errs)
	for i := range errs {
		if errors.Is(errs[i], distributed.ErrClosed) {
			return distributed.ErrClosed
		}
		if errs[i] == nil && p.replies[i] == "" {
			errs[i] = errLate
		}
	}
	return p.b.unavailable(p.what, p.b.failures(errs))
}

// wait returns the verdict. It waits for it within limit, and returns an error that Is ErrUnavailable if there is none, or that of ctx.
func (p *poll) wait(ctx context.Context, limit time.Duration) (verdict, error) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-p.decided:
	case <-t.C:
		err := p.failure()
		p.b.exchanged(p.what, p.sent, err)
		return unavailable, err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return pending, keyless.Errorf("redlock: %s: %w", p.what, ctx.Err())
		}
		return pending, distributed.Unavailable("redlock: "+p.what, ctx.Err())
	}
	if p.verdict == unavailable {
		return unavailable, p.failure()
	}
	return p.verdict, nil
}

// texts are the replies so far.
func (p *poll) texts() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.replies)
}

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
	count func(*ask) verdict // counts one answer, with mu held; none after the verdict
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

// gather asks all servers a question like k, waits within limit until so many have answered, and needs a majority. It returns the replies, ""
// of those that failed or are late.
func (b *Backend) gather(ctx context.Context, what string, limit time.Duration, want int, k ask) ([]string, error) {
	if b.client.Closed() {
		return nil, distributed.ErrClosed
	}
	if err := b.twinned(); err != nil {
		return nil, b.unavailable(what, err)
	}
	answered, failed := 0, 0
	p := b.poll(what, func(k *ask) verdict {
		if k.Err == nil {
			answered++
		} else {
			failed++
		}
		switch {
		case failed > len(b.nodes)-b.quorum:
			return unavailable
		case answered >= want, answered+failed == len(b.nodes):
			return granted
		}
		return pending
	})
	for _, n := range b.nodes {
		one := k
		one.done = p.done
		n.send(&one)
	}
	_, err := p.wait(ctx, limit)
	p.mu.Lock()
	defer p.mu.Unlock()
	if answered >= b.quorum && ctx.Err() == nil { // of those that were waited for, some are late
		err = nil
	}
	return slices.Clone(p.replies), err
}

// all waits for a majority of answers.
func (b *Backend) all(ctx context.Context, what string, limit time.Duration, k ask) ([]string, error) {
	k.lane, k.limit = lanes, limit
	return b.gather(ctx, what, limit+limit/2, b.quorum, k)
}

// everybody waits for all that answer within inspectBudget.
func (b *Backend) everybody(ctx context.Context, what string, k ask) ([]string, error) {
	k.limit = inspectBudget / 2
	return b.gather(ctx, what, inspectBudget, len(b.nodes), k)
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
	v := pending
	if p.verdict == pending {
		v = p.count(k)
		p.verdict = v
	}
	p.mu.Unlock()
	if v == pending { // or it was decided before
		return
	}
	p.report()
	if p.then != nil {
		p.then(p)
	}
	close(p.decided)
}

// report tells observers of the exchange: a majority has answered, or why not.
func (p *poll) report() {
	p.mu.Lock()
	answered := p.answered
	p.mu.Unlock()
	if answered >= p.b.quorum {
		p.b.exchanged(p.what, p.sent, nil)
	} else {
		p.b.exchanged(p.what, p.sent, p.failures())
	}
}

// failures says why no majority has decided.
func (p *poll) failures() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	errs := slices.Clone(p.errs)
	for i := range errs {
		if errs[i] == nil && p.replies[i] == "" {
			errs[i] = errLate
		}
	}
	return p.b.failures(errs)
}

func (p *poll) failure() error { return p.b.client.OrClosed(p.b.unavailable(p.what, p.failures())) }

// wait returns the verdict. It waits for it within limit, and returns an error that Is ErrUnavailable if there is none, or that of ctx.
func (p *poll) wait(ctx context.Context, limit time.Duration) (verdict, error) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select { // if both come at once, either wins: a verdict takes effect in then, whoever waits
	case <-p.decided:
	case <-t.C:
		p.report()
		return unavailable, p.failure()
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

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

var errUnreadable = conn.Refusal(keyless.Errorf("the server's answer cannot be read"))

// gathering waits for a majority of answers to one question.
type gathering struct {
	b    *Backend
	what string
	sent time.Time

	mu       sync.Mutex
	replies  []string // guarded by mu
	errs     []error  // guarded by mu
	answered int      // guarded by mu
	failed   int      // guarded by mu
	over     bool     // guarded by mu
	decided  chan struct{}
}

func newGathering(b *Backend, what string) *gathering {
	n := len(b.nodes)
	return &gathering{b: b, what: what, sent: time.Now(), replies: make([]string, n), errs: make([]error, n), decided: make(chan struct{})}
}

// done takes one answer.
func (g *gathering) done(k *ask) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if k.Err != nil {
		g.failed++
		g.errs[k.node.index] = k.Err
	} else {
		g.answered++
		g.replies[k.node.index] = k.Reply
	}
	if !g.over && (g.answered >= g.b.quorum || g.failed > len(g.errs)-g.b.quorum) {
		g.over = true
		close(g.decided)
	}
}

// wait returns nil when a majority has answered, else an error that Is ErrUnavailable, or that of ctx.
func (g *gathering) wait(ctx context.Context, limit time.Duration) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-g.decided:
	case <-t.C:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return keyless.Errorf("redlock: %s: %w", g.what, ctx.Err())
		}
		return distributed.Unavailable("redlock: "+g.what, ctx.Err())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.answered >= g.b.quorum {
		g.b.exchanged(g.what, g.sent, nil)
		return nil
	}
	if slices.ContainsFunc(g.errs, func(err error) bool { return errors.Is(err, distributed.ErrClosed) }) {
		return distributed.ErrClosed
	}
	for i := range g.errs {
		if g.errs[i] == nil && g.replies[i] == "" {
			g.errs[i] = errLate
		}
	}
	err := g.b.failures(g.errs)
	g.b.exchanged(g.what, g.sent, err)
	return g.b.unavailable(g.what, err)
}

var errLate = keyless.Errorf("no answer in time")

func (g *gathering) texts() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.replies)
}

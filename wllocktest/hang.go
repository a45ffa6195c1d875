package wllocktest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

// pingBudget bounds a Ping that hangs, as that of package redislock does.
const pingBudget = 5 * time.Second

// backend is memlock's, behind a network that can swallow requests. A partition without an answer is one whose errors
// come late. It is not Observable, since memlock reports at once what is to look like silence.
type backend struct {
	distributed.Backend
	memory *memlock.Backend // the same

	mu     sync.Mutex
	silent chan struct{} // closed when the hang ends; nil: no hang. Guarded by mu
}

func newHanging(t testing.TB) *backend {
	t.Helper()
	m := newBackend(t)
	return &backend{Backend: m, memory: m}
}

// Unwrap lets what memlock can do beside its three methods be found: to inspect and to detach. It is not delayed by a hang.
func (b *backend) Unwrap() distributed.Backend { return b.Backend }

// hang starts or ends a hang.
func (b *backend) hang(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case on && b.silent == nil:
		b.silent = make(chan struct{})
	case !on && b.silent != nil:
		close(b.silent)
		b.silent = nil
	}
}

// Enter implements distributed.Backend.
func (b *backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	l, p, err := b.Backend.Enter(ctx, req)
	if b.outlasts(ctx, err, distributed.ClaimWindow(req.TTL)) {
		return b.Backend.Enter(ctx, req)
	}
	return l, p, err
}

// Ping implements distributed.Backend.
func (b *backend) Ping(ctx context.Context) error {
	err := b.Backend.Ping(ctx)
	if b.outlasts(ctx, err, pingBudget) {
		return b.Backend.Ping(ctx)
	}
	return err
}

// outlasts waits, if the request has failed during a hang, until its time has passed. It reports whether the hang ended
// before: then the request is answered.
func (b *backend) outlasts(ctx context.Context, err error, patience time.Duration) bool {
	b.mu.Lock()
	silent := b.silent
	b.mu.Unlock()
	if silent == nil || !errors.Is(err, distributed.ErrUnavailable) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-silent: // also if ctx has ended: the backend looks at it again
		return true
	case <-ctx.Done():
		return false
	}
}

package sqllock

import (
	"context"

	"github.com/wllock/wllock/distributed"
)

// Release implements distributed.Lease.
func (l *lease) Release(ctx context.Context) error {
	held := l.Finish()
	if l.a.b.isClosed() {
		return distributed.ErrClosed
	}
	if r := l.begin(held, false); r != nil {
		l.a.b.removals.now(ctx, l.a.b, r)
	}
	return l.a.b.orClosed(l.wait(ctx))
}

// wait waits for the answer to the release.
func (l *lease) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.a.patience())
	defer cancel()
	select {
	case <-l.done:
		return l.outcome()
	case <-ctx.Done():
	}
	select { // a release that was answered wins
	case <-l.done:
		return l.outcome()
	default:
		return noAnswer("release", ctx.Err())
	}
}

func (l *lease) outcome() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held && l.err == nil {
		return distributed.ErrLeaseLost // it had expired here before its row was changed
	}
	return l.err
}

// StartRelease implements distributed.AsyncLease.
func (l *lease) StartRelease() bool {
	held := l.Stop()
	if l.a.b.isClosed() {
		return true // it expires
	}
	if r := l.begin(held, true); r != nil {
		l.a.b.removals.add(l.a.b, r)
		return false
	}
	l.mu.Lock()
	phase, err := l.phase, l.err
	done := phase == released && l.held && err == nil
	l.mu.Unlock()
	if phase == released && !done {
		l.Released(l.outcome())
	}
	return done
}

// begin starts the release, for its caller to send, unless it was begun before. watched has the answer sent to the Watcher, if it
// is not there yet.
func (l *lease) begin(held, watched bool) *removal {
	l.mu.Lock()
	first := l.phase == kept
	if first {
		l.phase, l.held = starting, held
	}
	l.watched = l.watched || watched && l.phase != released
	l.mu.Unlock()
	if !first {
		return nil
	}
	l.a.b.forget(l.a)
	return l.removal(l.claim)
}

// removal is the release for the database.
func (l *lease) removal(claim func() bool) *removal {
	return &removal{
		name: l.a.name, handle: l.fences.end(l.a.token, l.seat), until: l.Until(), claim: claim, done: l.settle,
	}
}

// claim is called once, when the release is about to be sent. It reports false if an Enter has been quicker, which does both in
// one statement: a loop that locks again at once.
func (l *lease) claim() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != starting {
		return false
	}
	l.phase = releasing
	return true
}

// settle takes the answer to the release. The first one counts.
func (l *lease) settle(held bool, err error) {
	l.mu.Lock()
	if l.phase == released {
		l.mu.Unlock()
		return
	}
	l.phase, l.err = released, err
	if err == nil && !held {
		l.err = distributed.ErrLeaseLost
	}
	close(l.done)
	watched := l.watched
	l.mu.Unlock()
	if watched {
		l.Released(l.outcome())
	}
}

// prev is the lease that a request releases first. nil is none.
type prev struct {
	l *lease
	h handle
}

// adopt returns the lease that an Enter releases first, no longer renewed. It ignores one that is not of this backend, instance and
// key, and one that was lost or released. One whose release was sent is waited for: two statements for one release could not
// tell which of them has done it.
func (b *Backend) adopt(ctx context.Context, req distributed.Request) (*prev, error) {
	l, ok := distributed.As[*lease](req.Prev)
	if !ok || l.a.b != b || l.a.key != req.Key || l.a.instance != req.Instance || !l.Finish() {
		return nil, nil
	}
	b.forget(l.a)
	l.mu.Lock()
	first := l.phase == kept
	if first || l.phase == starting {
		l.phase, l.held = adopted, first || l.held
		l.mu.Unlock()
		return &prev{l, l.fences.end(l.a.token, l.seat)}, nil
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, distributed.ClaimWindow(req.TTL))
	defer cancel()
	select {
	case <-l.done:
		return nil, nil
	case <-ctx.Done():
		return nil, noAnswer("release", ctx.Err())
	}
}

func (p *prev) handle() *handle {
	if p == nil {
		return nil
	}
	return &p.h
}

// contended reports that others wait for what is released.
func (p *prev) contended() bool { return p != nil && p.l.Contended() }

// outcome notes what became of it with the request.
func (p *prev) outcome(r reply) {
	switch {
	case p == nil:
	case r.err == nil:
		p.l.settle(r.prevHeld, nil)
		if r.prevHeld && r.outcome != granted {
			p.l.a.b.poke(p.l.a.name, p.l.a)
		}
	default:
		p.giveUp()
	}
}

// giveUp has it released in the background, after a request that may have done it or not.
func (p *prev) giveUp() {
	if p == nil {
		return
	}
	p.l.mu.Lock()
	p.l.phase = releasing
	p.l.mu.Unlock()
	r := p.l.removal(nil)
	r.tried = true
	p.l.a.b.removals.add(p.l.a.b, r)
}

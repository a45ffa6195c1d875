package etcdlock

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/wllock/wllock/distributed"
)

// prev is the lease that a request releases first. nil is none.
type prev struct {
	l    *lease
	mine bool // the request deletes it; otherwise its release is under way
}

// adopt returns the lease that an Enter releases first, no longer renewed. It ignores one that is not of this backend,
// instance and key, and one that was lost or released.
func (b *Backend) adopt(req distributed.Request) *prev {
	l, ok := distributed.As[*lease](req.Prev)
	if !ok || l.a.b != b || l.a.lock != req.Key || l.a.instance != req.Instance || !l.Finish() {
		return nil
	}
	l.a.end()
	l.mu.Lock()
	p := &prev{l: l}
	switch l.phase {
	case kept:
		l.held = true
		fallthrough
	case starting:
		l.phase, p.mine = adopted, true
	case released:
		p = nil
	}
	l.mu.Unlock()
	if _, dirty := l.a.key(); dirty {
		p.giveUp() // its deletion has to write the guard
	}
	return p
}

// replaced takes the answer to the deletion in the request's transaction.
func (p *prev) replaced(got *pb.ResponseOp) {
	switch {
	case p == nil || !p.mine:
	case got.GetResponseTxn().GetSucceeded():
		p.settle(nil)
	default:
		p.settle(errGone)
	}
}

// settle notes what became of it, if the request was to delete it. A try of the request that is carried out later finds another create
// revision, whoever has the name by then.
func (p *prev) settle(err error) {
	if p != nil && p.mine {
		p.mine = false
		p.l.a.gone()
		p.l.settle(err)
	}
}

// giveUp has it deleted in the background, after a request that may have done it or not.
func (p *prev) giveUp() {
	if p != nil && p.mine {
		p.mine = false
		p.l.launch()
	}
}

// release deletes it in a request of its own, and waits for the answer.
func (p *prev) release(ctx context.Context) error {
	p.giveUp()
	return p.settled(ctx)
}

// settled waits for a release that is under way, so that our key comes after its deletion.
func (p *prev) settled(ctx context.Context) error {
	if p == nil || p.mine {
		return nil
	}
	select {
	case <-p.l.done:
		return nil
	case <-ctx.Done():
		return unanswered("release", ctx.Err())
	}
}

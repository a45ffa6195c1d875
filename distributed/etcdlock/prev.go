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

// name is the key that the request is to delete, or "".
func (p *prev) name() string {
	if p == nil || !p.mine {
		return ""
	}
	return p.l.a.name
}

// replaced takes the answer to the deletion in the request's transaction. again: an earlier try may still be carried out.
func (p *prev) replaced(got *pb.ResponseOp, again bool) {
	if p == nil || !p.mine {
		return
	}
	var err error
	if got.GetResponseDeleteRange().GetDeleted() == 0 {
		err = errGone
	}
	p.settle(err, again)
}

// settle notes what became of it, if the request was to delete it. Its deletion does not compare the create revision: so if it may be
// carried out again, after somebody has deleted the request's key, the name is not used again.
func (p *prev) settle(err error, again bool) {
	if p != nil && p.mine {
		p.mine = false
		if !again {
			p.l.a.gone()
		}
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

package conn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// MaxSlots is how many exchanges of single calls may be under way with one node before calls share one. Up to then
// each goes straight through on a connection of its own, so with few callers none waits for another's reply.
const MaxSlots = 8

// fairBatch is how many calls a batch takes at least, if there are as many. It takes no more than its share, otherwise
// one slot ends up with all of them and server and client wait for each other in turn.
const fairBatch = 16

// soonReplied is how long a call waits for a slot before the end of its caller's context is looked at: a server that works replies sooner.
const soonReplied = 5 * time.Millisecond

// pipeline lets single calls share exchanges (group commit, rule R13). While all slots are busy, calls gather. When an
// exchange ends, its slot passes to a fair share of them, which go out in one batch. There is no goroutine for this: a
// call is sent by its own caller or by another one's. The waiter with the latest deadline leads the batch, so no other
// waiter is delayed beyond its own deadline.
//
// The AutoPipeline of go-redis would do the same, but its callers wait past the deadline of their context until the
// connection times out, and one connection, when ordered, carries all.
//
// Each node of a cluster has slots of its own, or a node that hangs would soon occupy all of them.
type pipeline struct {
	Transport
	slots       // of a single server, and of what is asked before a cluster is known
	acked slots // the same, of Acked calls

	nodesMu sync.Mutex
	nodes   map[nodeSlots]*slots // guarded by nodesMu; of a cluster

	waiters sync.Pool // of *waiter
}

// Pipelined returns a transport that lets single calls share the exchanges of t.
func Pipelined(t Transport) Transport {
	callers, acked := t.Slots()
	return &pipeline{Transport: t, slots: slots{most: callers}, acked: slots{most: acked}}
}

// nodeSlots names the slots of a node, or those of its Acked calls.
type nodeSlots struct {
	addr  string
	acked bool
}

// slots are the exchanges under way with one node, and the calls that wait for one.
type slots struct {
	most    int // at once
	mu      sync.Mutex
	busy    int       // guarded by mu; slots in use
	waiting []*waiter // guarded by mu; none while a slot is free
}

// waiter is a call that waits for a slot, on behalf of its caller. It is reused once its caller has the reply: waking
// that caller is the last thing a leader does to it.
type waiter struct {
	slots *slots    // it waits for one of these
	call  Call      // a copy: its caller may have gone, or ask again, when the reply comes
	by    time.Time // its caller's deadline
	// wake gets one message when the waiter was taken out of waiting: the batch that it is to send, itself included, or
	// nil: another waiter has sent it, and call has the reply.
	wake  chan []*waiter
	timer *time.Timer // for soonReplied, and then for by
}

// Do implements Transport. Several calls at once are a batch by themselves, and so is one that goes ahead.
func (p *pipeline) Do(ctx context.Context, calls ...*Call) {
	if len(calls) != 1 || calls[0].Ahead {
		p.Transport.Do(ctx, calls...)
		return
	}
	c := calls[0]
	s := p.to(nodeSlots{p.Node(ctx, c.Key()), c.Acked})
	s.mu.Lock()
	if s.busy < s.most {
		s.busy++
		s.mu.Unlock()
		p.Transport.Do(ctx, calls...) // a lone caller goes straight through (rule R13)
		s.next()
		return
	}
	by, _ := ctx.Deadline() // ours always have one
	w := p.waiter(s, c, by)
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	p.wait(ctx, w, c)
}

// to returns the slots of a node.
func (p *pipeline) to(name nodeSlots) *slots {
	of := &p.slots
	if name.acked {
		of = &p.acked
	}
	if name.addr == "" {
		return of
	}
	p.nodesMu.Lock()
	defer p.nodesMu.Unlock()
	s := p.nodes[name]
	if s == nil {
		if p.nodes == nil {
			p.nodes = make(map[nodeSlots]*slots)
		}
		s = &slots{most: of.most}
		p.nodes[name] = s
	}
	return s
}

func (p *pipeline) waiter(s *slots, c *Call, by time.Time) *waiter {
	w, ok := p.waiters.Get().(*waiter)
	if soon := min(soonReplied, time.Until(by)); ok {
		w.timer.Reset(soon)
	} else {
		w = &waiter{wake: make(chan []*waiter, 1), timer: time.NewTimer(soon)}
	}
	w.slots, w.call, w.by = s, *c, by
	return w
}

// wait returns when w was sent, by itself or by another, or has given up. c gets what came of it.
func (p *pipeline) wait(ctx context.Context, w *waiter, c *Call) {
	select { // at first for a moment without ctx, of which some must first make what says that it ends
	case batch := <-w.wake:
		p.woken(ctx, w, batch, c)
		return
	case <-w.timer.C:
		w.timer.Reset(time.Until(w.by))
	}
	select {
	case batch := <-w.wake:
		p.woken(ctx, w, batch, c)
		return
	case <-w.timer.C:
	case <-ctx.Done():
		w.timer.Stop()
	}
	if !w.slots.withdraw(w) {
		// Taken at the same moment. The leader must still send the batch of the others, and so has a reply after all;
		// any other waiter leaves its reply unread.
		select {
		case batch := <-w.wake:
			p.woken(ctx, w, batch, c)
			return
		default:
		}
	}
	c.Reply, c.Err = "", context.DeadlineExceeded
}

// woken is what a waiter does when it was taken out of waiting. Without a batch, another waiter has sent it.
func (p *pipeline) woken(ctx context.Context, w *waiter, batch []*waiter, c *Call) {
	if len(batch) > 0 {
		p.lead(ctx, w, batch)
	}
	c.Reply, c.Err, c.Sent = w.call.Reply, w.call.Err, w.call.Sent
	w.timer.Stop()
	w.call = Call{}
	p.waiters.Put(w)
}

// withdraw takes w out of waiting; false if somebody did so before.
func (s *slots) withdraw(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.waiting {
		if other == w {
			s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// lead sends a batch in one pipeline, wakes the other waiters and passes the slot on. The end of ctx, the leader's, ends it
// only while there is no connection. Then nothing was sent, and the others are not to suffer from that.
func (p *pipeline) lead(ctx context.Context, leader *waiter, batch []*waiter) {
	slots, by := leader.slots, leader.by // the leader is reused
	p.send(within{ctx, by}, batch)
	if len(batch) == 1 || ctx.Err() == nil || !errors.Is(leader.call.Err, context.Canceled) {
		slots.sent(batch, leader)
		return
	}
	others := slices.DeleteFunc(batch, func(w *waiter) bool { return w == leader })
	go func() {
		p.send(within{context.Background(), by}, others)
		slots.sent(others, nil)
	}()
}

func (p *pipeline) send(ctx context.Context, batch []*waiter) {
	calls := make([]*Call, len(batch))
	for i, w := range batch {
		calls[i] = &w.call
	}
	p.Transport.Do(ctx, calls...)
}

// sent wakes the waiters whose batch was sent, the leader does not wait, and passes its slot on.
func (s *slots) sent(batch []*waiter, leader *waiter) {
	for _, w := range batch {
		if w != leader {
			w.wake <- nil
		}
	}
	s.next()
}

// next passes a slot on to the calls that have gathered, or frees it.
func (s *slots) next() {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.waiting), max(len(s.waiting)/s.most, fairBatch), MaxBatch)
	if n == 0 {
		s.busy--
		return
	}
	batch := s.waiting[:n:n]
	s.waiting = s.waiting[n:]
	leader := batch[0]
	for _, w := range batch {
		if w.by.After(leader.by) {
			leader = w
		}
	}
	leader.wake <- batch
}

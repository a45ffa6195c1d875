package etcdlock

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
)

// attempt is one request for a lock and what became of it. Its key in etcd is its claim, from the first request to the last
// deletion; meanwhile no other request uses that name.
//
//	asking ── first in line ──────▶ leased
//	asking ── others are before ──▶ waiting ── it is its turn ──▶ leased
//	asking, waiting ── left, refused, its key or session is gone ──▶ ended
//	leased ── released, lost, left unread ──▶ ended
type attempt struct {
	b        *Backend
	s        *session
	lock     string // the key of the lock
	dir      string // the prefix of all requests for it
	name     string // the key of this one
	value    string // of the key: see valueOf
	tag      string
	instance string
	mode     distributed.Mode
	limit    int // of a permit; 0: none
	ttl      time.Duration
	noWait   bool
	readsAll bool                    // a NoWait has met a key that is no request; only its Enter uses it
	granted  chan distributed.Lease  // holds one; sent to and closed under mu
	item     deadline.Item[*attempt] // its next look without an event

	mu       sync.Mutex // guards all below
	state    attemptState
	dirty    bool     // a create was not answered, and may still be carried out: see session.guardKey
	freed    bool     // the name may be another request's
	revision int64    // at which the key was created; 0: it is not, as far as is known
	follows  string   // the key that it waits for; "": several
	watching []*watch // of a waiter on these, of a holder on all that enter, or on its waiter
	waiter   string   // of a holder that shares the lock: the first that waits, if it is watched, or is to be
	counts   bool     // of a holder: a permit has come, and only a look at the queue tells whether it waits
	lease    *lease
	looking  bool // a look is queued or under way
	again    bool // there was an event meanwhile
}

type attemptState uint8

const (
	asking attemptState = iota
	waiting
	leased
	ended
)

func (b *Backend) newAttempt(s *session, req distributed.Request) *attempt {
	dir, tag := b.dirOf(req.Key), tagOf(req.Instance)
	a := &attempt{
		b: b, s: s, lock: req.Key, dir: dir, tag: tag, name: b.names.take(dir + letterOf(req.Mode, req.Limit) + tag + "-"),
		value: valueOf(req.Instance), instance: req.Instance, mode: req.Mode, limit: req.Limit, ttl: req.TTL, noWait: req.NoWait,
		granted: make(chan distributed.Lease, 1),
	}
	a.item.Owner = a
	return a
}

func (a *attempt) shared() bool { return a.mode == distributed.Shared }

// rivals is the prefix of the requests that a shared or an exclusive one may have to wait for, and that may wait for it: a reader only
// knows writers and permits.
func (a *attempt) rivals(shared bool) string {
	if shared {
		return a.dir + rivalLetter
	}
	return a.dir
}

// enter is the exchange behind Backend.Enter; prev, if any, is finished, and this request's to release.
func (a *attempt) enter(ctx context.Context, prev *prev) (distributed.Lease, distributed.Place, error) {
	sent := time.Now()
	v, err := a.create(ctx, prev)
	if err == nil && (v == nil || v.undecided) {
		v, err = a.lookUntilAnswered(ctx)
	}
	var g *grant
	if err == nil && v.first {
		g, err = a.grant(ctx, sent, v)
	}
	switch {
	case err == nil && g != nil:
		if l := a.begin(*g); l != nil {
			return l, nil, nil
		}
		err = errOver
	case err == nil && a.noWait:
		err = distributed.ErrHeld
	case err == nil:
		return nil, a.queued(v), nil
	}
	a.discard()
	return nil, nil, err
}

// begin makes the lease of a direct grant; nil: Close or the end of the session was quicker.
func (a *attempt) begin(g grant) *lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == ended {
		return nil
	}
	return a.start(g)
}

// queued makes the place.
func (a *attempt) queued(v *view) distributed.Place {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == ended {
		close(a.granted)
		return place{a}
	}
	a.state = waiting
	a.follow(v)
	a.plan(distributed.HeartbeatInterval(a.ttl))
	return place{a}
}

// gridPerBeat is the number of moments in H at which looks without an event are gathered, so that they share a request.
const gridPerBeat = 8

// plan sets when to look without an event. The caller holds mu.
func (a *attempt) plan(in time.Duration) {
	step := max(distributed.HeartbeatInterval(a.ttl)/gridPerBeat, time.Millisecond)
	at := time.Now().Add(in)
	if in > step {
		at = at.Add(-(at.Sub(a.b.base) % step))
	}
	a.b.due.Put(&a.item, at)
}

// poke has the attempt look at its queue in the background.
func (a *attempt) poke() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == waiting {
		a.queueLook()
	}
}

// queueLook gives the attempt to a worker. The caller holds mu.
func (a *attempt) queueLook() {
	a.again = true
	if !a.looking {
		a.looking = true
		a.b.work.add(a)
	}
}

// work is called by a worker: one look at a time, and another one after an event meanwhile.
func (a *attempt) work() {
	for {
		a.mu.Lock()
		holds := a.state == leased
		goes := a.again && (a.state == waiting || holds) && a.s.ctx.Err() == nil
		a.again, a.looking = false, goes
		a.mu.Unlock()
		switch {
		case !goes:
			return
		case holds:
			a.count(a.s.ctx)
		default:
			a.advance(a.s.ctx)
		}
	}
}

// advance looks whether it is the waiter's turn.
func (a *attempt) advance(ctx context.Context) {
	sent := time.Now()
	v, err := a.look(ctx)
	var g *grant
	if err == nil && v.first {
		g, err = a.grant(ctx, sent, v)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.state != waiting: // left, or lost, meanwhile
	case errors.Is(err, errRobbed):
		a.robbed()
	case err != nil:
		a.plan(distributed.HeartbeatInterval(a.ttl))
	case g == nil:
		a.follow(v)
		a.plan(distributed.HeartbeatInterval(a.ttl))
	default:
		a.granted <- a.start(*g) // the one that the channel holds
	}
}

// lose ends the waiting without a lease. The caller holds mu.
func (a *attempt) lose() {
	a.ends()
	close(a.granted)
	a.b.forget(a)
}

// robbed ends the waiting of an attempt whose key was deleted by somebody else. A create of it that may still come must not leave a
// key that nobody knows (rule E1). The caller holds mu.
func (a *attempt) robbed() {
	a.lose()
	a.s.dead.add(&removal{a: a, tried: true})
}

// ends marks the attempt as ended. The caller holds mu.
func (a *attempt) ends() {
	a.state = ended
	a.b.due.Remove(&a.item)
	a.unwatch()
}

// start makes the lease of a grant. The caller holds mu.
func (a *attempt) start(g grant) *lease {
	a.state, a.again = leased, false
	a.unwatch()
	a.lease = newLease(a, g)
	return a.lease
}

// unread reports that the grant has not been received.
func (a *attempt) unread() bool { return len(a.granted) > 0 }

// sessionOver is called when the session has expired.
func (a *attempt) sessionOver() {
	a.mu.Lock()
	l := a.lease
	switch a.state {
	case waiting:
		a.lose()
	case asking:
		a.ends()
	}
	a.mu.Unlock()
	if l != nil {
		l.End()
		a.end()
	}
}

// end forgets an attempt. A lease has ended by then.
func (a *attempt) end() {
	a.mu.Lock()
	a.ends()
	a.mu.Unlock()
	a.b.forget(a)
}

// discard ends an attempt and deletes its key, if there may be one: its caller has gone, or was refused.
func (a *attempt) discard() {
	a.end()
	if revision, dirty := a.key(); dirty || revision != 0 {
		a.s.dead.add(&removal{a: a, tried: true})
	} else {
		a.gone()
	}
}

// gone is called when etcd has answered that the key is not there, or no longer ours: twice, if a lease that was lost is released. By the
// second time the name may be another request's (rule E7).
func (a *attempt) gone() {
	a.mu.Lock()
	free := !a.dirty && !a.freed
	a.freed = true
	a.mu.Unlock()
	if free {
		a.b.names.put(a.name)
	}
}

// deletion deletes the key if it is the one that we know.
func (a *attempt) deletion() *pb.TxnRequest {
	revision, _ := a.key()
	return &pb.TxnRequest{Compare: []*pb.Compare{ifCreated(a.name, revision)}, Success: []*pb.RequestOp{opDelete(a.name)}}
}

// key returns what is known of the key: the revision at which it was created, and whether it may be created yet.
func (a *attempt) key() (revision int64, dirty bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.revision, a.dirty
}

// place is a waiting attempt as its user sees it.
type place struct{ a *attempt }

// Granted implements distributed.Place.
func (p place) Granted() <-chan distributed.Lease { return p.a.granted }

// Leave implements distributed.Place.
func (p place) Leave(ctx context.Context) error {
	a := p.a
	a.mu.Lock()
	waits := a.state == waiting
	if waits {
		a.ends()
	}
	a.mu.Unlock()
	if waits {
		a.b.forget(a)
		return a.b.orClosed(a.leave(ctx))
	}
	select { // against the receiver: the channel decides
	case l, ok := <-a.granted:
		if !ok {
			return nil
		}
		if err := l.Release(ctx); !errors.Is(err, distributed.ErrLeaseLost) {
			return err
		}
	default:
	}
	return nil
}

// leave deletes the key and waits for the answer. The deletion goes on when the caller's time has ended, or a try was refused.
func (a *attempt) leave(ctx context.Context) error {
	answer := make(chan error, 1) // the first counts
	reply := func(err error) {
		select {
		case answer <- err:
		default:
		}
	}
	a.s.dead.add(&removal{a: a, tried: true, heard: reply, done: reply})
	timer := time.NewTimer(a.s.tryTime())
	defer timer.Stop()
	var err error
	select {
	case err = <-answer:
	case <-timer.C:
		err = unanswered("leave", errSilent)
	case <-ctx.Done():
		err = unanswered("leave", ctx.Err())
	}
	if errors.Is(err, errOver) {
		return nil
	}
	return err
}

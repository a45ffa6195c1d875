package zklock

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
)

// attempt is one request for a lock and what became of it. Its node is its claim, from the first request to the last
// deletion; the id in the node's name is its own.
//
//	asking ── first in line ──────▶ leased
//	asking ── others are before ──▶ waiting ── it is its turn ──▶ leased
//	asking, waiting ── left, refused, its node or session is gone ──▶ ended
//	leased ── released, lost, left unread ──▶ ended
type attempt struct {
	b        *Backend
	s        *session
	key, dir string // the lock, and the path of its node
	instance string
	tag, id  string
	mode     distributed.Mode
	limit    int // of a permit; 0: none
	ttl      time.Duration
	noWait   bool
	granted  chan distributed.Lease  // holds one; sent to and closed under mu
	item     deadline.Item[*attempt] // its next look without an event

	mu      sync.Mutex // guards all below
	state   attemptState
	node    string   // name of its node; "" before it is known
	follows []string // paths of the nodes whose watches are set
	lease   *lease
	holder  string // whose node it waits for, if that holds the lock; "": not known
	looking bool   // a look is queued or under way
	again   bool   // there was an event meanwhile
}

type attemptState uint8

const (
	asking attemptState = iota
	waiting
	leased
	ended
)

func (b *Backend) newAttempt(s *session, req distributed.Request) *attempt {
	a := &attempt{
		b: b, s: s, key: req.Key, dir: b.dirOf(req.Key), instance: req.Instance, tag: tagOf(req.Instance), id: idOf(rand.Text(), req.Limit),
		mode: req.Mode, limit: req.Limit, ttl: req.TTL, noWait: req.NoWait, granted: make(chan distributed.Lease, 1),
	}
	a.item.Owner = a
	return a
}

func (a *attempt) shared() bool { return a.mode == distributed.Shared }

// enter is the exchange behind Backend.Enter; prev, if any, is finished, and this request's to release.
func (a *attempt) enter(ctx context.Context, prev *prev) (distributed.Lease, distributed.Place, error) {
	if a.noWait {
		held, err := a.taken(ctx, prev)
		for isInterruption(err) && a.s.await(ctx) == nil {
			pause(ctx)
			held, err = a.taken(ctx, prev)
		}
		if held || err != nil {
			prev.giveUp()
			a.end()
			return nil, nil, orHeld(err)
		}
	}
	sent := time.Now()
	if err := a.create(ctx, prev); err != nil {
		a.discard()
		return nil, nil, err
	}
	g, err := a.look(ctx, sent)
	for isInterruption(err) && a.s.await(ctx) == nil {
		pause(ctx)
		g, err = a.look(ctx, sent)
	}
	switch {
	case err != nil:
		a.discard()
		return nil, nil, err
	case g != nil:
		if l := a.begin(*g); l != nil {
			return l, nil, nil
		}
		a.discard()
		return nil, nil, errOver
	case a.noWait:
		a.discard()
		return nil, nil, distributed.ErrHeld
	}
	return nil, a.queued(), nil
}

func orHeld(err error) error {
	if err == nil {
		return distributed.ErrHeld
	}
	return err
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
func (a *attempt) queued() distributed.Place {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == ended {
		close(a.granted)
	} else {
		a.state = waiting
		a.plan(distributed.HeartbeatInterval(a.ttl))
		if a.again {
			a.queueLook()
		}
	}
	return place{a}
}

// plan sets when to look without an event. The caller holds mu.
func (a *attempt) plan(in time.Duration) { a.b.due.Put(&a.item, time.Now().Add(in)) }

// poke has the attempt look at its queue in the background.
func (a *attempt) poke() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again = true
	if !a.looking && (a.state == waiting || a.state == leased) {
		a.queueLook()
	}
}

// event is called when something has happened to a node that the attempt watches. A holder looks a little later: several
// may come or go at once.
func (a *attempt) event(path string) {
	a.unfollow(path)
	if strings.HasSuffix(path, "/"+nextName) {
		a.unfollow(a.dir) // which stands for all nodes of the key
	}
	a.mu.Lock()
	if a.state == leased {
		a.lease.changed.Store(true)
		a.plan(lookPause)
	}
	holds := a.state == leased
	a.mu.Unlock()
	if !holds {
		a.poke()
	}
}

// reconnected has the attempt look again: its watch may not have been set again.
func (a *attempt) reconnected() {
	a.mu.Lock()
	a.follows = nil
	a.mu.Unlock()
	a.poke()
}

// queueLook gives the attempt to a worker. The caller holds mu.
func (a *attempt) queueLook() {
	a.looking = true
	a.b.work.add(a)
}

// work is called by a worker: one look at a time, and another one after an event meanwhile.
func (a *attempt) work() {
	ctx, cancel := context.WithTimeout(a.s.ctx, max(a.s.timeout(), time.Second))
	defer cancel()
	for {
		a.mu.Lock()
		state, l := a.state, a.lease
		a.again = false
		a.mu.Unlock()
		switch state {
		case waiting:
			a.advance(ctx)
		case leased:
			l.look(ctx)
		}
		if a.rest() {
			return
		}
	}
}

// rest ends the work unless there was an event meanwhile.
func (a *attempt) rest() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.again && a.state != ended && a.s.ctx.Err() == nil {
		return false
	}
	a.looking = false
	return true
}

// advance looks whether it is the waiter's turn.
func (a *attempt) advance(ctx context.Context) {
	g, err := a.look(ctx, time.Now())
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.state != waiting: // left, or lost, meanwhile
	case errors.Is(err, errRobbed):
		a.lose()
	case err != nil || g == nil:
		a.plan(distributed.HeartbeatInterval(a.ttl))
	default:
		a.granted <- a.start(*g) // the one that the channel holds
	}
}

// lose ends the waiting without a lease. The caller holds mu.
func (a *attempt) lose() {
	a.state = ended
	a.b.due.Remove(&a.item)
	close(a.granted)
	a.b.forget(a)
}

// start makes the lease of a grant. The caller holds mu.
func (a *attempt) start(g grant) *lease {
	a.state = leased
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
		a.state = ended
	}
	a.mu.Unlock()
	if l != nil {
		l.End()
	}
}

// end forgets an attempt that has no node. A lease has ended by then.
func (a *attempt) end() {
	a.mu.Lock()
	a.state = ended
	a.b.due.Remove(&a.item)
	a.mu.Unlock()
	a.b.forget(a)
}

// discard ends an attempt and deletes its node, if there is one: its caller has gone, or was refused.
func (a *attempt) discard() {
	a.mu.Lock()
	node := a.node
	a.mu.Unlock()
	if node != "" {
		a.s.dead.add(&removal{path: a.dir + "/" + node, tried: true})
	}
	a.end()
}

// place is a waiting attempt as its user sees it.
type place struct{ a *attempt }

// Granted implements distributed.Place.
func (p place) Granted() <-chan distributed.Lease { return p.a.granted }

// Holder implements distributed.HolderTeller.
func (p place) Holder() string {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	return p.a.holder
}

// Leave implements distributed.Place.
func (p place) Leave(ctx context.Context) error {
	a := p.a
	a.mu.Lock()
	waits := a.state == waiting
	if waits {
		a.state = ended
		a.b.due.Remove(&a.item)
	}
	a.mu.Unlock()
	if waits {
		defer a.b.forget(a)
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

// leave deletes the node and waits for the answer. The deletion goes on when the caller's time has ended.
func (a *attempt) leave(ctx context.Context) error {
	answer := make(chan error, 1)
	first := func(err error) {
		select {
		case answer <- err:
		default:
		}
	}
	a.s.dead.add(&removal{path: a.dir + "/" + a.node, tried: true, denied: first, done: first})
	err := a.s.reply(ctx, "leave", answer)
	if errors.Is(err, errOver) {
		return nil
	}
	return err
}

package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/deadline"
	"github.com/wllock/wllock/internal/identity"
)

// attempt is one Enter and what came of it. It is registered from before it is sent until it has ended.
//
//	asking ──lease─────────────────────────────────▶ leased
//	   └─place─▶ waiting ──grant (message, heartbeat)─▶ leased, or claiming first if little is left of W
//	                  ├─place lost─▶ ended: Granted is closed
//	                  └─Leave──────▶ ended: silence
//
// A grant that comes while asking is kept until the reply says whether it was needed.
type attempt struct {
	s        *session
	node     *node
	attempts *attempts // that it is one of
	id       identity.Attempt
	key      string
	mode     distributed.Mode
	permit   bool // a shared one with a limit
	ttl      time.Duration
	window   time.Duration // W: what a grant gets, until it is claimed
	after    uint64        // a fence of its key that is known to be reserved, so that every later one is larger; 0: none
	wire     wireAttempt

	item deadline.Item[*attempt] // the next heartbeat; guarded by node.heartbeats

	mu        sync.Mutex
	state     attemptState
	since     time.Time // a pushed grant is younger than this: the last request answered with a place was sent then
	early     *grant    // came before the reply
	holder    string    // of the lock, as the last answer with a place named it
	polls     int       // of a foreigner's key, without interruption
	beat      time.Time // when the next heartbeat is due; of a place
	contended bool      // a message said so, perhaps before the grant
	noticed   time.Time // when the last message about that came
	wanted    bool      // a message said that another was refused, perhaps before the reply with the lease
	lease     *lease    // set once leased
	// granted is made with the attempt's place and then read only. One lease fits, and it is sent under mu in the
	// one change from waiting to leased, so sending never blocks.
	granted chan distributed.Lease
}

type attemptState uint8

const (
	asking attemptState = iota
	waiting
	claiming
	leased
	ended
)

func newAttempt(all *attempts, n *node, req distributed.Request, after uint64) *attempt {
	a := &attempt{
		s: n.s, node: n, attempts: all, id: all.next(), key: req.Key, mode: req.Mode, permit: req.Limit > 0, ttl: req.TTL, since: time.Now(),
		after: after, window: n.s.network().claimWindow(req.TTL),
	}
	a.wire = a.s.attempt(a.id, a.key, instanceName(req.Instance), a.mode, a.ttl, a.window)
	if req.NoWait {
		a.wire.noWait()
	}
	if a.permit {
		a.wire.limited(req.Limit)
	}
	a.item.Owner = a
	return a
}

// entered turns the reply to enter into what Enter returns. sent is when the request was sent that was answered.
func (a *attempt) entered(ctx context.Context, r standing, sent time.Time) (distributed.Lease, distributed.Place, error) {
	switch r.kind {
	case hasLease:
		return a.direct(ctx, r.grant)
	case hasPlace:
		return nil, a.placed(r.position, sent), nil
	}
	a.finish()
	switch {
	case r.kind == heldByOther:
		return nil, nil, distributed.HeldAndTold(r.holder)
	case r.kind == outdated && a.attempts.isClosed(): // Close has ended the attempt, and was quicker
		return nil, nil, distributed.ErrClosed
	case r.kind == outdated: // somebody uses our instance and process id; the attempt counter cannot have gone back
		return nil, nil, conn.Unavailable("enter", conn.Refusal(errors.New("the server knows a later attempt")))
	default:
		return nil, nil, conn.Unavailable("enter", conn.Refusal(fmt.Errorf("the server answers %q", r.kind)))
	}
}

// direct makes the lease of a grant that came with the reply. With little left of the claim window, which means a
// slow server or a new connection, it is claimed before anybody uses it (rule R5).
func (a *attempt) direct(ctx context.Context, g grant) (distributed.Lease, distributed.Place, error) {
	until := distributed.Validity(g.since, a.window)
	if a.late(until) {
		c := a.wire.renew()
		sent, err := a.s.ask(ctx, c, a.ttl, a.window)
		if err == nil && !readRenew(c.Reply).held {
			err = distributed.Unavailable("redis: enter", fmt.Errorf("replies take longer than the claim window of %v", a.window))
		}
		if err != nil {
			a.discard()
			return nil, nil, err
		}
		until = distributed.Validity(sent, a.ttl)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == ended { // Close was quicker and gives the grant back
		return nil, nil, distributed.ErrClosed
	}
	return a.begin(g, until), nil, nil
}

// repeatedLate reports that an earlier try may have released prev, been granted the lock, and have expired since: the server
// remembers that prev has ended only while the lock names the later attempt.
func (a *attempt) repeatedLate(c *conn.Call, sent time.Time) bool {
	return c.Tries > 1 && sent.Sub(a.since) > a.window/2
}

// late reports that too little of the claim window is left for a claim in the background, which may need a new connection.
func (a *attempt) late(until time.Time) bool {
	return distributed.Left(time.Now(), until) < max(a.window/4, a.s.network().claimTime(a.ttl))
}

// begin makes the lease of a grant and has it kept. The caller holds mu.
func (a *attempt) begin(g grant, until time.Time) *lease {
	a.state = leased
	a.lease = newLease(a, g)
	a.lease.start(until, a.contended || g.contended) // no watcher yet, so nothing is called back
	if a.wanted || a.s.gap > 0 {                     // foreigners poll, and cannot say that they want it (rules R12 and T12)
		a.lease.Want()
	}
	return a.lease
}

// placed makes the place and delivers the grant that was quicker than the reply.
func (a *attempt) placed(p position, sent time.Time) distributed.Place {
	a.mu.Lock()
	a.granted = make(chan distributed.Lease, 1)
	if a.state == ended { // Close was quicker
		close(a.granted)
		a.mu.Unlock()
		return place{a}
	}
	a.state = waiting
	early := a.early
	if early == nil {
		a.since = sent
	}
	a.mu.Unlock()
	if early != nil {
		a.receive(*early)
	} else {
		a.schedule(p, sent)
	}
	return place{a}
}

// receive takes a grant that was pushed or found by a heartbeat. It returns false if nobody here waits for it; then
// the caller returns it. A repeated grant is ignored.
func (a *attempt) receive(g grant) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if g.since.IsZero() {
		g.since = a.since // its validity counts from when we last asked (rule R6)
	}
	switch a.state {
	case asking:
		a.early = &g
		return true
	case waiting:
		until := distributed.Validity(g.since, a.window)
		if a.late(until) {
			a.claim(g)
		} else {
			a.deliver(g, until)
		}
		return true
	default:
		return a.state != ended
	}
}

// deliver ends the waiting with a lease. The caller holds mu.
func (a *attempt) deliver(g grant, until time.Time) {
	a.stopHeartbeats()
	a.granted <- a.begin(g, until)
}

// claim renews a grant before it is delivered. The caller holds mu.
func (a *attempt) claim(g grant) {
	a.state = claiming
	a.stopHeartbeats()
	a.node.background.add(claimTask{a, g}, a.ttl, time.Now().Add(a.ttl))
}

// claimTask renews a grant before it is delivered.
type claimTask struct {
	a *attempt
	g grant
}

func (t claimTask) call() *conn.Call { return t.a.wire.renew() }

func (t claimTask) answered(c *conn.Call, sent time.Time) {
	a := t.a
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.state != claiming: // left meanwhile
	case c.Err == nil && readRenew(c.Reply).held:
		a.deliver(t.g, distributed.Validity(sent, a.ttl))
	default:
		a.end()
		if c.Err != nil { // it may have been renewed, for T
			a.leaveInBackground()
		}
	}
}

// end means that the place is lost: enter again. The caller holds mu, the state is waiting or claiming. The attempt is
// forgotten by the next sweep.
func (a *attempt) end() {
	a.state = ended
	a.stopHeartbeats()
	close(a.granted)
}

// heartbeatIn plans a heartbeat if the attempt still waits.
func (a *attempt) heartbeatIn(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == waiting {
		a.putHeartbeat(time.Now().Add(d))
	}
}

// heartbeatSooner is heartbeatIn for a message: it never puts a heartbeat off, however many of them come.
func (a *attempt) heartbeatSooner(d time.Duration) {
	now := time.Now()
	at := now.Add(min(d, distributed.HeartbeatInterval(a.ttl)))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != waiting || a.beat.After(now) && a.beat.Before(at) { // if it is due it is perhaps under way, and knows less
		return
	}
	a.putHeartbeat(at)
}

// putHeartbeat plans the next heartbeat. The caller holds mu, the state is waiting.
func (a *attempt) putHeartbeat(at time.Time) {
	a.beat = at
	a.node.heartbeats.due.Put(&a.item, at)
}

func (a *attempt) stopHeartbeats() { a.node.heartbeats.due.Remove(&a.item) }

// setContended takes a message that another instance waits for what this attempt has or is going to have, or that none
// waits any more.
func (a *attempt) setContended(waits bool) {
	a.mu.Lock()
	a.contended, a.noticed = waits, time.Now()
	l := a.lease
	a.mu.Unlock()
	if l != nil {
		l.SetContended(waits)
	}
}

// want takes a message that another instance was refused what this attempt has, and does not wait (rule T12).
func (a *attempt) want() {
	a.mu.Lock()
	a.wanted = true
	a.mu.Unlock()
	a.wantLease()
}

// wantLease says of the attempt's lease, if it has one, that it is wanted.
func (a *attempt) wantLease() {
	a.mu.Lock()
	l := a.lease
	a.mu.Unlock()
	if l != nil && l.Want() {
		l.NotifyContended()
	}
}

// noticedSince reports that a message about contention has come since then.
func (a *attempt) noticedSince(sent time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.noticed.After(sent)
}

// finish forgets an attempt that has nothing at the server.
func (a *attempt) finish() {
	a.mu.Lock()
	a.state = ended
	a.mu.Unlock()
	a.attempts.forget(a)
}

// discard forgets an attempt without knowing what it has at the server, and leaves that in the background: the caller's
// context has ended, and what the attempt leaves behind would delay others.
func (a *attempt) discard() {
	a.finish()
	a.leaveInBackground()
}

func (a *attempt) leaveInBackground() { a.node.background.leave(&a.wire, a.ttl) }

// close leaves a place when the Backend is closed. Leases expire by themselves.
func (a *attempt) close() {
	a.mu.Lock()
	was := a.state
	if was == leased || was == ended {
		a.mu.Unlock()
		return
	}
	a.state = ended
	if was == waiting || was == claiming {
		close(a.granted)
	}
	a.mu.Unlock()
	a.leaveInBackground()
}

// stale reports that the attempt has ended, or that its lease was lost and never released.
func (a *attempt) stale() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lease
	return a.state == ended || l != nil && distributed.Over(time.Now(), l.Until())
}

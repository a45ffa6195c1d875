package sqllock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
)

// attempt is one request for a lock and what became of it. Its token is its own: what the database has under it is this attempt's.
//
//	asking ── free ─────────────▶ leased
//	asking ── not free ─────────▶ waiting ── it takes the lock ──▶ leased
//	asking, waiting ── left, refused, its row is gone ──▶ ended
//	leased ── released, lost, left unread ──▶ ended
type attempt struct {
	b        *Backend
	key      string
	instance string
	claim
	granted chan distributed.Lease  // holds one; sent to and closed under mu
	item    deadline.Item[*attempt] // its next look

	mu      sync.Mutex // guards all below
	state   attemptState
	lease   *lease
	reply   *reply    // of the request, while it is asking
	pace    pace      // of its looks
	beatDue time.Time // its next heartbeat

	holding string // who holds the lock, as far as the answers tell

	notified bool // it may take the lock, by a notification since the last look
	changing bool // a transaction of a look is under way
}

type attemptState uint8

const (
	asking attemptState = iota
	waiting
	leased
	ended
)

// reply is what came of the request.
type reply struct {
	answer
	err error
}

func (b *Backend) newAttempt(req distributed.Request) *attempt {
	a := &attempt{b: b, key: req.Key, instance: req.Instance, granted: make(chan distributed.Lease, 1)}
	a.name, a.full = storedName(req.Key)
	a.holder = cut(req.Instance, longestInstance)
	a.token, a.mode, a.limit, a.ttl, a.noWait = b.newToken(), req.Mode, req.Limit, req.TTL, req.NoWait
	a.item.Owner = a
	return a
}

// enter is the exchange behind Backend.Enter.
func (a *attempt) enter(ctx context.Context, prev *prev) (distributed.Lease, distributed.Place, error) {
	a.prev, a.contended = prev.handle(), prev.contended() || a.limit > 0 && a.b.usedByOthers(a) // a permit beside them takes a transaction
	for start := time.Now(); ; {
		late, err := a.try(ctx, prev)
		switch {
		case time.Since(start) < busyTime && a.again(ctx, err):
		case err != nil:
			prev.giveUp()
			a.end()
			return nil, nil, err
		default:
			return a.conclude(late, prev)
		}
	}
}

// try sends the request; an error says that it was not sent, and late why there may be no reply. The request runs on a goroutine of the
// crew, so that a caller that goes does not have the driver close the connection; what its request got then is removed. It is bounded by
// the claim window: nobody relies on an answer that comes later.
func (a *attempt) try(ctx context.Context, prev *prev) (late, err error) {
	b := a.b
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), distributed.ClaimWindow(a.ttl))
	leave, err := a.pass(ctx, bound)
	if err != nil {
		cancel()
		return nil, err
	}
	answered := make(chan struct{})
	if !b.crew.run(b, func() {
		defer cancel()
		defer leave()
		defer close(answered)
		stop := context.AfterFunc(b.asking, cancel)
		defer stop()
		a.answer(a.ask(bound), prev)
	}) {
		cancel()
		leave()
		return nil, distributed.ErrClosed
	}
	select {
	case <-answered:
	case <-ctx.Done():
	case <-bound.Done():
	}
	return firstError(ctx.Err(), bound.Err()), nil
}

// busyTime is how long a request to SQLite is tried again. A file that is busy for so long is as good as away, and whoever closes a
// Locker waits for its requests.
const busyTime = 30 * time.Second

// again reports that the request is to be tried once more: SQLite lets in one writer at a time, in no order, so it may find the file busy
// for the whole of its time. That is contention, and no outage, if the file can be read. The answer to a new try is worth as much as that
// to the first would have been, because a lease counts from the sending of the try that got it. unsent says why the last one was not
// sent. Only the caller's goroutine tries, and only when the last try is over, so there is never more than one.
func (a *attempt) again(ctx context.Context, unsent error) bool {
	b := a.b
	if b.dialect != SQLite || a.noWait || ctx.Err() != nil || b.isClosed() {
		return false
	}
	a.mu.Lock()
	r := a.reply
	a.mu.Unlock()
	if unsent == nil && (r == nil || r.err == nil || !isTimeout(r.err) && kindOf(r.err) != collided) {
		return false
	}
	look, cancel := context.WithTimeout(ctx, distributed.ClaimWindow(a.ttl)/2)
	defer cancel()
	start := time.Now()
	_, _, err := b.isHeld(look, &a.claim)
	b.observe(start, err)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil || a.state == ended { // Close was quicker
		return false
	}
	a.reply = nil
	return true
}

// ask sends the request. That to SQLite ends in time to be tried again.
func (a *attempt) ask(ctx context.Context) reply {
	if a.b.dialect == SQLite {
		var cancel context.CancelFunc
		ctx, cancel = halfOf(ctx)
		defer cancel()
	}
	start := time.Now()
	r, err := a.b.request(ctx, &a.claim)
	a.b.observe(start, err)
	return reply{r, explain("enter", err)}
}

// answer takes the reply: for the caller, or if that has gone, to remove what was got. mu decides which (rule D4).
func (a *attempt) answer(r reply, prev *prev) {
	a.mu.Lock()
	gone := a.state == ended
	if !gone {
		a.reply = &r
	}
	a.mu.Unlock()
	if gone && (r.err == nil && r.outcome != refusedHeld || r.err != nil && !isAnswer(r.err)) {
		a.b.removals.add(a.b, a.removal())
	}
	if gone {
		prev.outcome(r)
	}
}

// conclude is where the caller of Enter takes its reply, or goes without because its time has ended.
func (a *attempt) conclude(late error, prev *prev) (distributed.Lease, distributed.Place, error) {
	a.mu.Lock()
	r := a.reply
	if r == nil || a.state == ended { // the reply goes to answer, or Close was quicker
		a.state = ended
		a.mu.Unlock()
		a.b.forget(a)
		if r != nil {
			prev.outcome(*r)
			a.b.removals.add(a.b, a.removal())
		}
		return nil, nil, distributed.Unavailable("sqllock: enter", late)
	}
	defer prev.outcome(*r)
	defer a.mu.Unlock()
	switch {
	case r.err != nil || r.outcome == refusedHeld:
		a.state = ended
		a.b.forget(a)
		if r.err == nil {
			return nil, nil, distributed.Held(r.holder)
		}
		if kindOf(r.err) == lost {
			a.b.removals.add(a.b, a.removal())
		}
		return nil, nil, r.err
	case r.outcome == queuedUp:
		a.holding = r.holder
		a.queue()
		return nil, place{a}, nil
	}
	if l := a.start(r.answer); !distributed.Over(time.Now(), l.Until()) {
		return l, nil, nil
	}
	a.state = ended
	a.b.forget(a)
	a.b.removals.add(a.b, a.removal())
	return nil, nil, distributed.Unavailable("sqllock: enter", errors.New("the answer came when the lease had expired"))
}

// removal removes whatever the attempt has in the database.
func (a *attempt) removal() *removal {
	return &removal{name: a.name, handle: handle{token: a.token}, any: true, tried: true, until: time.Now().Add(a.ttl)}
}

// queue makes the attempt wait. The caller holds mu.
func (a *attempt) queue() {
	a.state = waiting
	a.beatDue = time.Now().Add(distributed.HeartbeatInterval(a.ttl))
	a.pace.restart(time.Now(), 0)
	a.plan(a.nextLook())
}

// plan sets when to look next. The caller holds mu.
func (a *attempt) plan(in time.Duration) { a.b.due.Put(&a.item, time.Now().Add(in)) }

// start makes the lease of a grant. The caller holds mu.
func (a *attempt) start(g answer) *lease {
	a.state = leased
	a.lease = newLease(a, g)
	return a.lease
}

// lose ends the waiting without a lease.
func (a *attempt) lose() {
	a.mu.Lock()
	if a.state == waiting {
		a.state = ended
		close(a.granted)
	}
	a.mu.Unlock()
	a.b.forget(a)
}

// end forgets an attempt that waits no more.
func (a *attempt) end() {
	a.mu.Lock()
	a.state = ended
	a.mu.Unlock()
	a.b.forget(a)
}

// unread reports that the grant has not been received.
func (a *attempt) unread() bool { return len(a.granted) > 0 }

// close ends what is not held, and returns what is to be removed; nil: nothing.
func (a *attempt) close() *removal {
	a.mu.Lock()
	state := a.state
	switch state {
	case waiting:
		a.state = ended
		close(a.granted)
	case asking:
		a.state = ended
	case leased:
		select {
		case l := <-a.granted: // unread
			l.(*lease).Stop()
			close(a.granted)
			state = waiting
		default:
		}
	}
	a.mu.Unlock()
	if state == leased {
		return nil
	}
	a.b.forget(a)
	return a.removal()
}

// place is a waiting attempt as its user sees it.
type place struct{ a *attempt }

// Holder implements distributed.HolderTeller.
func (p place) Holder() string {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	return p.a.holding
}

// Granted implements distributed.Place.
func (p place) Granted() <-chan distributed.Lease { return p.a.granted }

// Leave implements distributed.Place. A look that takes the lock meanwhile meets the removal of the same token at the row: one of the
// two comes second, and either finds no place or what the other has taken.
func (p place) Leave(ctx context.Context) error {
	a := p.a
	a.mu.Lock()
	waits := a.state == waiting
	if waits {
		a.state = ended
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

// leave removes the place and waits for the answer. The removal goes on when the caller's time has ended.
func (a *attempt) leave(ctx context.Context) error {
	answered := make(chan error, 1)
	r := a.removal()
	r.done = func(_ bool, err error) { answered <- err }
	a.b.removals.add(a.b, r)
	return await(ctx, "leave", answered, a.patience())
}

// patience is how long a caller waits for the answer to what goes on without it.
func (a *attempt) patience() time.Duration { return max(distributed.ClaimWindow(a.ttl), time.Second) }

func await(ctx context.Context, what string, answered <-chan error, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
	}
	select { // an answer that is there wins
	case err := <-answered:
		return err
	default:
		return noAnswer(what, ctx.Err())
	}
}

package redislock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
)

// attempt is one Enter and what came of it. It is registered from before it is sent until it is over.
//
//	asking ──"lease"──────────────────────────────▶ leased
//	   └─"place"─▶ waiting ──grant (notice, heartbeat)─▶ leased, or claiming first if little is left of W
//	                  ├─"gone"─▶ over: Granted is closed
//	                  └─Leave───▶ over: silence
//
// A grant that comes while asking is kept until the reply says whether it was needed.
type attempt struct {
	b        *Backend
	node     *node
	id       uint64
	key      string
	instance string // as it stands in tokens
	mode     distributed.Mode
	ttl      time.Duration
	token    *string // ARGV 1 of lua/common.lua
	wire     []any   // what all its calls begin with

	item deadline.Item[*attempt] // the next heartbeat; guarded by node.beats

	mu     sync.Mutex
	state  attemptState
	since  time.Time // a pushed grant is younger than this: the last question answered "place" was sent then
	early  *grant    // came before the reply
	polls  int       // of a foreigner's key, without a break
	wanted bool      // a notice said so, perhaps before the grant
	lease  *lease    // set once leased
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
	over
)

// grant is the server's word that an attempt owns the lock.
type grant struct {
	fence  uint64
	count  uint64
	wanted bool
	since  time.Time // its claim window began at this time or later
}

func newAttempt(b *Backend, req distributed.Request) *attempt {
	a := &attempt{
		b: b, node: b.node(req.Key), id: b.last.Add(1), key: req.Key, instance: instanceName(req.Instance), mode: req.Mode, ttl: req.TTL,
		since: time.Now(),
	}
	a.wire = b.wire(a.id, a.key, a.instance, a.mode, a.ttl)
	a.token = a.wire[tokenAt].(*string)
	if req.NoWait {
		a.wire[settingsAt] = b.termsOf(a.ttl).nowait // which enter alone looks at
	}
	a.item.Owner = a
	return a
}

// call returns a call of one of the attempt's scripts.
func (a *attempt) call(s *script, more ...any) *call { return a.b.call(s, a.wire, more...) }

// entering is the call that asks for the lock, and gives up the lease before. It is made once, and so has the room
// behind wire for itself.
func (a *attempt) entering(prev *lease) *call {
	return &call{script: enterScript, wire: append(a.wire, fenceArg(a.b.seen.Load()), prev.asPrev())}
}

// leaving is the call that gives up all that the attempt has.
func (a *attempt) leaving() *call { return a.call(leaveScript, a.b.termsOf(a.ttl).past) }

// wire is what the calls about one attempt begin with: the command, the keys, and ARGV 1 to 6 as lua/common.lua has
// them. It is enter's as it is; behind it is room for what that adds.
func (b *Backend) wire(id uint64, key, instance string, mode distributed.Mode, ttl time.Duration) []any {
	texts := &struct {
		keys           [6]string
		token, attempt string
	}{keys: keysOf(key, instance)}
	var digits [20]byte
	attempt := strconv.AppendUint(digits[:0], id, 10)
	texts.token = prefix + "x:" + b.process + ":" + string(attempt) + ":" + instance + ":"
	start := len(prefix) + len("x:") + len(b.process) + len(":")
	texts.attempt = texts.token[start : start+len(attempt)]
	w := append(make([]any, 0, wireHead+len(texts.keys)+6+2), "evalsha", enterScript.digest, len(texts.keys))
	for i := range texts.keys {
		w = append(w, &texts.keys[i]) // a pointer, for a string in an interface is an allocation
	}
	t := b.termsOf(ttl)
	return append(w, &texts.token, &texts.attempt, t.mode(mode), t.window, t.keep, t.settings)
}

// call adds ARGV 7, which is as of now, and what only this script has.
func (b *Backend) call(s *script, wire []any, more ...any) *call {
	w := make([]any, 0, len(wire)+1+len(more))
	w = append(w, wire...)
	w[1] = s.digest
	w = append(w, fenceArg(b.seen.Load()))
	return &call{script: s, wire: append(w, more...)}
}

// terms are the arguments that follow from a TTL, put into interfaces once.
type terms struct {
	ttl                time.Duration
	single             bool
	exclusive          any // mode
	window, keep, past any
	settings           any
	refill, nowait     any // settings with the larger block; with the wish to take no place
}

// termsOf returns the terms for a TTL. A process has one TTL as a rule, so the last ones are kept.
func (b *Backend) termsOf(ttl time.Duration) *terms {
	single := b.single.Load()
	if t := b.terms.Load(); t != nil && t.ttl == ttl && t.single == single {
		return t
	}
	ms, gap, counts := ttl.Milliseconds(), b.settings.gap.Milliseconds(), 0
	if single {
		counts = 1
	}
	past := max(10_000, 2*ms)
	settings := func(block, nowait int) any { return fmt.Sprint(ms, counts, block, gap, past, nowait) }
	t := &terms{
		ttl: ttl, single: single, exclusive: "x", window: ms / 2, keep: max(60_000, 4*ms), past: past,
		settings: settings(firstBlock, 0), refill: settings(laterBlock, 0), nowait: settings(firstBlock, 1),
	}
	if gap > 0 {
		t.exclusive = "xg"
	}
	b.terms.Store(t)
	return t
}

func (t *terms) mode(m distributed.Mode) any {
	if m == distributed.Shared {
		return "s"
	}
	return t.exclusive
}

// oldAnswer is enter's when the server knows a later attempt of the instance.
const oldAnswer = "old"

// answered turns the reply to enter into what Enter returns. sent is when the question left that was answered.
func (a *attempt) answered(ctx context.Context, c *call, sent time.Time) (distributed.Lease, distributed.Place, error) {
	if g, ok := microsecond(c.reply, sent); ok {
		return a.direct(ctx, g)
	}
	switch c.word(0) {
	case "lease":
		return a.direct(ctx, readGrant(c, sent))
	case "place":
		return nil, a.placed(c, sent), nil
	case "held":
		a.finish()
		return nil, nil, distributed.ErrHeld
	case oldAnswer: // somebody uses our instance and process id; the attempt counter cannot have gone back
		a.finish()
		if a.b.isClosed() { // Close has given the attempt up, and was quicker
			return nil, nil, distributed.ErrClosed
		}
		return nil, nil, fmt.Errorf("redislock: enter: %w: the server knows a later attempt", distributed.ErrUnavailable)
	default:
		a.finish()
		return nil, nil, fmt.Errorf("redislock: enter: %w: the server answers %q", distributed.ErrUnavailable, c.reply)
	}
}

// direct makes the lease of a grant that came with the reply. With little left of the claim window, which means a
// slow server, it is claimed before anybody uses it.
func (a *attempt) direct(ctx context.Context, g grant) (distributed.Lease, distributed.Place, error) {
	window := distributed.ClaimWindow(a.ttl)
	until := distributed.Validity(g.since, window)
	if late(until, window) {
		c := a.call(renewScript)
		sent, err := a.b.ask(ctx, c, a.ttl, window)
		if err == nil && c.word(0) != "held" {
			err = fmt.Errorf("redislock: enter: %w: answers take longer than the claim window of %v", distributed.ErrUnavailable, window)
		}
		if err != nil {
			a.abandon()
			return nil, nil, err
		}
		until = distributed.Validity(sent, a.ttl)
	}
	a.mu.Lock()
	if a.state == over { // Close was quicker and gives the grant back
		a.mu.Unlock()
		return nil, nil, distributed.ErrClosed
	}
	a.state = leased
	l := newLease(a, g)
	l.start(until, a.wanted || g.wanted) // no watcher yet, so nothing is called back
	a.mu.Unlock()
	return l, nil, nil
}

// late reports that too little of a claim window is left to leave the claim to the background.
func late(until time.Time, window time.Duration) bool {
	return distributed.Left(time.Now(), until) < window/4
}

// placed makes the place and delivers the grant that was quicker than the reply.
func (a *attempt) placed(c *call, sent time.Time) distributed.Place {
	a.mu.Lock()
	a.granted = make(chan distributed.Lease, 1)
	if a.state == over { // Close was quicker
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
		a.schedule(c)
	}
	return place{a}
}

// receive takes a grant that was pushed or found by a heartbeat. It returns false if nobody here waits for it; then
// the caller gives it back. A repeated grant is ignored.
func (a *attempt) receive(g grant) bool {
	window := distributed.ClaimWindow(a.ttl)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch a.state {
	case asking:
		if g.since.IsZero() {
			g.since = a.since
		}
		a.early = &g
		return true
	case waiting:
		if g.since.IsZero() {
			g.since = a.since
		}
		until := distributed.Validity(g.since, window)
		if late(until, window) {
			a.claim(g)
		} else {
			a.deliver(g, until)
		}
		return true
	default:
		return a.state != over
	}
}

// deliver ends the waiting with a lease. The caller holds mu.
func (a *attempt) deliver(g grant, until time.Time) {
	a.state = leased
	a.node.beats.Remove(&a.item)
	l := newLease(a, g)
	l.start(until, a.wanted || g.wanted) // no watcher yet, so nothing is called back
	a.granted <- l
}

// claim renews a grant before it is delivered. The caller holds mu.
func (a *attempt) claim(g grant) {
	a.state = claiming
	a.node.beats.Remove(&a.item)
	a.node.errands.add(claimed{a, g}, a.ttl, time.Now().Add(a.ttl))
}

// claimed is the errand of renewing a grant before it is delivered.
type claimed struct {
	a *attempt
	g grant
}

func (e claimed) make() *call { return e.a.call(renewScript) }

func (e claimed) answered(c *call, sent time.Time) {
	a := e.a
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.state != claiming: // left meanwhile
	case c.err == nil && c.word(0) == "held":
		a.deliver(e.g, distributed.Validity(sent, a.ttl))
	default:
		a.end()
		if c.err != nil { // it may have been renewed, for T
			a.giveBack()
		}
	}
}

// end says that the place is lost: enter again. The caller holds mu, the state is waiting or claiming. The attempt is
// forgotten by the next sweep.
func (a *attempt) end() {
	a.state = over
	a.node.beats.Remove(&a.item)
	close(a.granted)
}

// want notes that another instance waits for what this attempt has or is going to have.
func (a *attempt) want() {
	a.mu.Lock()
	a.wanted = true
	l := a.lease
	a.mu.Unlock()
	if l != nil {
		l.SetContended()
	}
}

// finish forgets an attempt that has nothing at the server.
func (a *attempt) finish() {
	a.mu.Lock()
	a.state = over
	a.mu.Unlock()
	a.b.forget(a)
}

// abandon forgets an attempt of which nobody knows what it has at the server, and has it given up there in the
// background: the caller's context has ended, and what it leaves behind would hold up others.
func (a *attempt) abandon() {
	a.finish()
	a.giveBack()
}

// giveBack gives up all that the attempt has, in the background. A lease takes the claim window at most to run out, a
// place is passed over at its turn for as long.
func (a *attempt) giveBack() { a.node.errands.add((*givenBack)(a), a.ttl, time.Now().Add(a.ttl)) }

type givenBack attempt

func (a *givenBack) make() *call               { return (*attempt)(a).leaving() }
func (a *givenBack) answered(*call, time.Time) {}

// close gives up a place when the Backend is closed. Leases run out by themselves.
func (a *attempt) close() {
	a.mu.Lock()
	was := a.state
	if was == leased || was == over {
		a.mu.Unlock()
		return
	}
	a.state = over
	if was == waiting || was == claiming {
		close(a.granted)
	}
	a.mu.Unlock()
	a.giveBack()
}

// stale reports that the attempt is over, or that its lease was lost and never released.
func (a *attempt) stale() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lease
	return a.state == over || l != nil && distributed.Over(time.Now(), l.Until())
}

// jittered is d more or less a tenth, so that what began together does not stay together.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d)/5+1))
}

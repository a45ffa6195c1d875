package driver

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

// simService is a simulated lock service: a queue per key, in the order of requests, and sessions that expire, or leases and places. What a
// request does is done at one moment; what may happen to it on its way is the client's affair: see simClient.exchange.
type simService struct {
	mu       sync.Mutex // guards all below
	revision uint64     // of the latest change
	queues   map[string][]*simEntry
	known    map[string]*simEntry // by id, for ever: a request that comes again, or late, has one effect
	dropped  map[string]bool      // ids that were dropped before they came
	sessions map[int]time.Time    // when they expire
	unused   map[int]bool         // sessions that their process has ended: nothing of theirs was lost by that
	latest   map[string]uint64    // the number of an instance's latest request
	asks     *simEntry            // that is answered now, and needs no message
	clients  []*simClient
	opened   int  // sessions so far
	late     bool // the request that is carried out was sent long ago, perhaps
}

// simEntry is a request, which holds the lock if it is admitted.
type simEntry struct {
	id      string
	key     string
	session int
	shared  bool
	limit   int
	gone    bool
	prevWas bool      // what it has found of the one before
	expired time.Time // when it went with its session, or by itself
	turn    time.Time // when it was admitted
	broken  time.Time // when somebody has taken it out of the queue

	watcher   *simClient    // its process is told of all that becomes of it, in order
	contends  time.Time     // since when others wait for what it has
	copied    bool          // a request that came late has had it live on
	alone     *simClient    // it has no session but an end of its own, and its process is told of its turn
	number    uint64        // of its attempt
	instance  string        // who asks
	ttl       time.Duration // a claim window is half of it
	ends      time.Time     // when it expires
	removed   bool          // by a Drop
	contended bool          // so its process was told
}

func newSimService() *simService {
	return &simService{
		queues: map[string][]*simEntry{}, known: map[string]*simEntry{}, dropped: map[string]bool{}, sessions: map[int]time.Time{},
		unused: map[int]bool{}, latest: map[string]uint64{},
	}
}

// simAdmitted is how many at the head of the queue hold the lock: see etcdlock's rule E9.
func simAdmitted(q []*simEntry) int {
	for i, e := range q {
		switch {
		case !e.shared && i == 0:
			return 1
		case !e.shared, e.limit > 0 && i >= e.limit:
			return i
		}
	}
	return len(q)
}

// do runs one request, after what has expired by now was removed.
func (v *simService) do(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	var over []int
	maps.DeleteFunc(v.sessions, func(id int, until time.Time) bool {
		if now.After(until) {
			over = append(over, id)
		}
		return now.After(until)
	})
	for _, key := range v.keys() {
		for _, e := range slices.Clone(v.queues[key]) {
			if e.alone == nil && slices.Contains(over, e.session) {
				e.expired = now
				v.remove(e)
			}
		}
		for _, e := range slices.Backward(slices.Clone(v.queues[key])) { // the head last, so that nobody's turn comes that has expired
			if e.alone != nil && now.After(e.ends) {
				e.expired = now
				v.remove(e)
			}
		}
	}
	f()
}

// keys returns those with a queue, in the same order each time: a schedule is to be played again.
func (v *simService) keys() []string { return slices.Sorted(maps.Keys(v.queues)) }

// doLate is do for a request that comes late.
func (v *simService) doLate(f func()) {
	v.do(func() {
		v.late = true
		f()
		v.late = false
	})
}

// lives has an entry without a session expire no earlier than that.
func (v *simService) lives(e *simEntry, d time.Duration) {
	e.copied = e.copied || v.late
	if until := time.Now().Add(d); e.ends.Before(until) {
		e.ends = until
	}
}

func (v *simService) remove(e *simEntry) (was bool) {
	if e == nil || e.gone {
		return false
	}
	e.gone = true
	if e.watcher != nil {
		e.watcher.event(e.number, (*Attempt[simWire]).Gone)
	}
	v.revision++
	v.queues[e.key] = slices.DeleteFunc(v.queues[e.key], func(one *simEntry) bool { return one == e })
	v.changed(e.key)
	return true
}

// turns notes whose turn it is. The caller holds mu.
func (v *simService) turns(key string) {
	q := v.queues[key]
	n := simAdmitted(q)
	contended := n < len(q)
	for _, e := range q[:n] {
		first := e.turn.IsZero()
		if first {
			e.turn = time.Now()
		}
		switch {
		case e.watcher != nil:
			e.watched(first && e != v.asks, contended)
			continue
		case e.alone == nil:
			continue
		case first:
			e.ends = e.turn.Add(e.ttl / 2)
			v.revision++
			fences := Block{v.revision * simBlock, simBlock}
			if one := *e; e != v.asks {
				one.alone.message(func(lane *Lane[simWire]) { one.alone.granted(lane, one, fences, contended) })
			}
		}
		if contended != e.contended {
			e.contended = contended
			e.alone.message(func(lane *Lane[simWire]) {
				if a := lane.Find(e.number); a != nil {
					a.Noticed(contended)
				}
			})
		}
	}
}

// watched tells the process of an entry that it is its turn, or whether others wait.
func (e *simEntry) watched(turn, contended bool) {
	is := !e.contends.IsZero()
	switch {
	case turn:
		v := e.watcher.v
		v.revision++
		s := Standing{Kind: Granted, Fences: Block{v.revision * simBlock, simBlock}, Contended: contended, Next: Never}
		e.watcher.event(e.number, func(a *Attempt[simWire]) { a.Stands(s) })
	case contended != is:
		e.watcher.event(e.number, (*Attempt[simWire]).Poke)
	}
	if contended && !is {
		e.contends = time.Now()
	} else if !contended {
		e.contends = time.Time{}
	}
}

// changed pushes that a key's queue has changed. The caller holds mu.
func (v *simService) changed(key string) {
	v.turns(key)
	for _, c := range v.clients {
		c.push(key)
	}
}

// breakIt ends a request, as an operator does with a lease.
func (v *simService) breakIt(e *simEntry) {
	if e != nil && !e.gone {
		e.broken = time.Now()
		v.remove(e)
	}
}

// breakOne takes a request that waits out of its queue, as an operator does who deletes a key.
func (v *simService) breakOne(n int) {
	for _, key := range v.keys() {
		q := v.queues[key]
		if i := simAdmitted(q) + n; i < len(q) {
			v.breakIt(q[i])
			return
		}
	}
}

// simAnswer is what a request has found.
type simAnswer struct {
	there, admitted, contended, prevWas bool
	holder                              string
	revision                            uint64
}

func (v *simService) standing(e *simEntry) (a simAnswer) {
	q := v.queues[e.key]
	i := slices.Index(q, e)
	if i < 0 {
		return a
	}
	n := simAdmitted(q)
	if e.alone != nil { // who asks is alive
		if i < n {
			v.lives(e, e.ttl/2)
		} else {
			v.lives(e, e.ttl)
		}
	}
	return simAnswer{there: true, admitted: i < n, contended: n < len(q), holder: q[0].id, revision: v.revision}
}

func (v *simService) enter(e simEntry, prev string, noWait bool) (a simAnswer, refused bool) {
	if old := v.known[e.id]; old != nil {
		a = v.standing(old)
		a.prevWas = old.prevWas
		return a, false
	}
	if _, alive := v.sessions[e.session]; !alive && e.alone == nil || v.dropped[e.id] {
		return a, false
	}
	before := v.known[prev]
	a.prevWas = v.remove(before) || before != nil && before.removed
	e.prevWas = a.prevWas
	v.latest[e.instance] = max(v.latest[e.instance], e.number)
	v.lives(&e, e.ttl)
	q := append(slices.Clone(v.queues[e.key]), &e)
	if noWait && simAdmitted(q) < len(q) {
		return a, true
	}
	v.known[e.id], v.queues[e.key] = &e, q
	v.revision++
	v.asks = &e
	v.changed(e.key)
	v.asks = nil
	a = v.standing(&e)
	a.prevWas = e.prevWas
	return a, false
}

// transfer puts an entry in the place of another one that holds the lock.
func (v *simService) transfer(from string, to simEntry) simAnswer {
	if old := v.known[to.id]; old != nil {
		return v.standing(old)
	}
	e := v.known[from]
	if e == nil || e.gone || e.turn.IsZero() || e.shared || v.dropped[to.id] {
		return simAnswer{}
	}
	e.gone, to.turn = true, time.Now()
	v.lives(&to, to.ttl/2)
	q := slices.Clone(v.queues[e.key])
	q[slices.Index(q, e)] = &to
	v.known[to.id], v.queues[e.key] = &to, q
	v.latest[to.instance] = max(v.latest[to.instance], to.number)
	v.revision++
	return v.standing(&to)
}

// drop removes a request, and tells what became of it.
func (v *simService) drop(id string, number uint64, instance string) Outcome {
	e := v.known[id]
	v.dropped[id] = true
	switch was := v.remove(e); {
	case e != nil && e.alone == nil:
		return outcome(was)
	case was:
		e.removed = true
		return Removed
	case e != nil && e.removed:
		return Removed
	case v.latest[instance] > number: // and that one has removed it, perhaps
		return Missing
	}
	return Lost
}

// Kinds of processes: with a session, with one and told of all that becomes of their requests, and those that renew each lease.
const simSessions, simWatches, simRenewals = "sessions", "watches", "renewals"

// simClient is a process: a Driver, its session and its network.
type simClient struct {
	v   *simService
	id  int
	b   *Backend[simWire]
	ttl time.Duration
	rnd *rand.Rand
	ctx context.Context

	lane    *Lane[simWire] // of a process that renews its leases; nil: it has a session
	watches bool           // it is told of all that becomes of its requests, once and in order, and does not look by itself

	sessions *Sessions[simWire, *simSession]

	mu      sync.Mutex // guards all below
	faults  bool
	silent  time.Time // until then nothing that it sends arrives
	closed  time.Time // when it was closed
	denies  string    // the key of which nothing may be dropped
	names   int
	present map[*Attempt[simWire]]bool
	told    time.Time      // when the latest event comes
	late    sync.WaitGroup // requests that come late
}

type simWire struct {
	c     *simClient
	entry simEntry
}

// simSession is alive as long as its beats are answered.
type simSession struct {
	*Task[simWire]
	c  *simClient
	id int

	mu    sync.Mutex // guards all below
	until time.Time
	last  time.Time
}

func (s *simSession) Until() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.until
}

func (s *simSession) Healthy(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.last) < s.TTL/2
}

func (s *simSession) Patience() time.Duration { return s.TTL / 3 }

var errSimUnknown = fmt.Errorf("no answer: %w", distributed.ErrUnavailable)

func (c *simClient) with(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// below draws from the process's source.
func (c *simClient) below(n int64) (drawn int64) {
	c.with(func() { drawn = c.rnd.Int64N(n) })
	return drawn
}

// passing draws how long something is on its way.
func (c *simClient) passing() time.Duration { return time.Duration(c.below(int64(c.ttl/100))) + 1 }

// exchange sends a request. It may be lost, carried out without an answer, late, or twice: what does not come first answers nobody.
func (c *simClient) exchange(ctx context.Context, request func(first bool)) error {
	done := false // guarded by the service's mu
	f := func() {
		request(!done)
		done = true
	}
	pause := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errSimUnknown, ctx.Err())
		}
	}
	fault := int64(99)
	c.with(func() {
		switch {
		case !c.faults:
		case time.Now().Before(c.silent):
			fault = 3
		case ctx.Value(simFaultless{}) == nil:
			fault = c.rnd.Int64N(20)
		}
	})
	there, back := c.passing(), c.passing()
	if fault <= 2 { // it comes late, or for a second time
		c.late.Go(func() {
			time.Sleep(there + time.Duration(c.below(int64(c.ttl))))
			c.v.doLate(f)
		})
	}
	if fault == 5 && c.lane != nil { // a claim comes too late for its window, perhaps
		back += time.Duration(c.below(int64(c.ttl / 2)))
	}
	if err := pause(there); err != nil {
		c.late.Go(func() { c.v.doLate(f) }) // it was on its way
		return err
	}
	if fault > 1 && fault != 3 {
		c.v.do(f)
	}
	if fault <= 1 || fault == 3 || fault == 4 {
		_ = pause(c.ttl / 10)
		return errSimUnknown
	}
	return pause(back)
}

func (c *simClient) open(t *Task[simWire]) (*simSession, error) {
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	c.v.opened++
	return &simSession{Task: t, c: c, id: c.v.opened}, nil
}

func (s *simSession) isOpen() bool { return !s.Until().IsZero() }

// Beat opens the session, or keeps it alive.
func (s *simSession) Beat(bool) time.Duration {
	sent, alive := time.Now(), false
	err := s.c.exchange(s.Ctx, func(first bool) {
		if !first {
			return
		}
		_, alive = s.c.v.sessions[s.id]
		if alive = alive || !s.isOpen() && time.Since(sent) < s.TTL/2; alive {
			s.c.v.sessions[s.id] = time.Now().Add(s.TTL)
		}
	})
	switch {
	case err != nil:
	case alive:
		s.mu.Lock()
		s.until, s.last = distributed.Validity(sent, s.TTL), sent
		s.mu.Unlock()
		s.Lane.Retry()
	case s.isOpen():
		s.Expire()
	}
	s.Tried(err)
	return s.TTL / 10
}

func (s *simSession) End(held bool) {
	if !held {
		_ = s.c.exchange(s.c.ctx, func(bool) {
			if _, is := s.c.v.sessions[s.id]; is {
				s.c.v.sessions[s.id], s.c.v.unused[s.id] = time.Now(), true
			}
		})
	}
}

// push tells the process, perhaps, that a key's queue has changed.
func (c *simClient) push(key string) {
	if c.lane != nil || c.watches {
		return
	}
	c.late.Go(func() {
		time.Sleep(c.passing())
		if !c.loses() {
			c.each(func(a *Attempt[simWire]) bool { return a.Key == key }, (*Attempt[simWire]).Poke)
		}
	})
}

// loses draws whether a message is lost.
func (c *simClient) loses() (is bool) {
	c.with(func() { is = c.faults && c.rnd.IntN(4) == 0 })
	return is
}

// each tells those of the process's requests.
func (c *simClient) each(is func(*Attempt[simWire]) bool, tell func(*Attempt[simWire])) {
	var all []*Attempt[simWire]
	c.with(func() {
		all = slices.DeleteFunc(slices.Collect(maps.Keys(c.present)), func(a *Attempt[simWire]) bool { return !is(a) })
	})
	slices.SortFunc(all, func(a, b *Attempt[simWire]) int { return cmp.Compare(a.Number, b.Number) })
	for _, a := range all {
		tell(a)
	}
}

// event tells a process that watches what becomes of a request, perhaps before that is answered.
func (c *simClient) event(number uint64, f func(*Attempt[simWire])) {
	at := time.Now().Add(c.passing())
	c.with(func() {
		if !at.After(c.told) {
			at = c.told.Add(1)
		}
		c.told = at
	})
	c.late.Go(func() {
		time.Sleep(time.Until(at))
		c.each(func(a *Attempt[simWire]) bool { return a.Number == number }, f)
	})
}

// message delivers something to the process, perhaps late, twice or not at all.
func (c *simClient) message(f func(*Lane[simWire])) {
	for range 1 + c.below(8)/7 {
		delay := c.passing()
		if c.below(10) == 0 {
			delay += time.Duration(c.below(int64(c.ttl)))
		}
		lost := c.loses()
		c.with(func() { lost = lost || c.faults && time.Now().Before(c.silent) })
		if !lost {
			c.late.Go(func() {
				time.Sleep(delay)
				f(c.lane)
			})
		}
	}
}

// granted takes a message that it is a request's turn.
func (c *simClient) granted(lane *Lane[simWire], e simEntry, fences Block, contended bool) {
	a := lane.Find(e.number)
	if a != nil {
		a.Stands(Standing{Kind: Granted, Fences: fences, Contended: contended, Next: Never})
		return
	}
	a = c.b.Orphan(e.number, distributed.Request{Key: e.key, Instance: e.instance, TTL: e.ttl})
	a.Lane, a.Wire = lane, simWire{c, e}
	a.Discard()
}

func (c *simClient) Prepare(ctx context.Context, a *Attempt[simWire]) error {
	if c.lane != nil {
		a.Lane = c.lane
		a.Wire = simWire{c, simEntry{
			id: fmt.Sprint(c.id, "-", a.Number), key: a.Key, shared: a.Mode == distributed.Shared, limit: a.Limit,
			alone: c, number: a.Number, instance: a.Instance, ttl: a.TTL,
		}}
		return nil
	}
	s, err := c.sessions.Find(Class{TTL: a.TTL})
	if err == nil {
		err = s.Answered(ctx, s.isOpen, func(_, err error) error { return err })
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names++
	a.Lane, a.Lasts = s.Lane, s.TTL*3/4
	a.Wire.c = c
	a.Wire.entry = simEntry{
		id: strconv.Itoa(s.id) + "-" + strconv.Itoa(c.names), key: a.Key, session: s.id, shared: a.Mode == distributed.Shared, limit: a.Limit,
		number: a.Number,
	}
	if c.watches {
		a.Wire.entry.watcher = c
	}
	c.present[a] = true
	return nil
}

func (c *simClient) Ended(a *Attempt[simWire]) { c.with(func() { delete(c.present, a) }) }

func (c *simClient) Enter(ctx context.Context, a *Attempt[simWire], prev *Prev[simWire]) (Standing, error) {
	if c.b.set.Apart != nil { // its caller may go
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, a.Window)
	defer cancel()
	if a.NoWait {
		prev.GiveUp() // it is released also if nothing else is done, so a repeat could not tell
	}
	if err := prev.Wait(ctx); err != nil {
		return Standing{}, err
	}
	if c.watches && c.below(6) == 0 { // somebody breaks it, perhaps before it is answered
		c.late.Go(func() {
			time.Sleep(time.Duration(c.below(int64(c.ttl / 25))))
			c.v.do(func() { c.v.breakIt(c.v.known[a.Wire.entry.id]) })
		})
	}
	before := ""
	if p := prev.Mine(); p != nil {
		before = p.Wire.entry.id
	}
	for tries := 0; ; tries++ {
		var got simAnswer
		var refused bool
		sent := time.Now()
		err := c.exchange(ctx, func(first bool) {
			if g, r := c.v.enter(a.Wire.entry, before, a.NoWait); first {
				got, refused = g, r
			}
		})
		if err != nil {
			if tries < 2 && ctx.Err() == nil {
				continue
			}
			return Standing{}, err
		}
		if before != "" {
			if was := outcome(got.prevWas); was == Missing && c.lane != nil {
				prev.Settle(Lost)
			} else {
				prev.Settle(was)
			}
		}
		switch {
		case refused:
			return Standing{Kind: Refused, Holder: "somebody"}, c.mark(ctx, a)
		case !got.there && c.lane != nil: // it was granted, and has expired
			return Standing{}, errSimUnknown
		case !got.there:
			return Standing{}, fmt.Errorf("the session has gone: %w", ErrOver)
		}
		return standingOf(a, got, sent), nil
	}
}

// mark has the service ignore what may still come of a request that was refused: nothing is left of it.
func (c *simClient) mark(ctx context.Context, a *Attempt[simWire]) error {
	return c.exchange(ctx, func(bool) {
		c.v.dropped[a.Wire.entry.id] = true
		c.v.remove(c.v.known[a.Wire.entry.id]) // which a copy has brought after the refusal
	})
}

func outcome(was bool) Outcome {
	if was {
		return Removed
	}
	return Missing
}

const simBlock = 4

func standingOf(a *Attempt[simWire], got simAnswer, sent time.Time) Standing {
	s := Standing{Kind: Queued, Sent: sent, Contended: got.contended, Holder: got.holder, Next: a.TTL / 6}
	if got.admitted {
		s.Kind, s.Fences = Granted, Block{got.revision * simBlock, simBlock}
		if a.Wire.entry.alone != nil {
			s.Next = Never // its renewals tell
		}
	}
	if a.Wire.entry.watcher != nil {
		s.Next = Never
	}
	return s
}

// simFaultless marks the context of a request that always works.
type simFaultless struct{}

func (c *simClient) Look(ctx context.Context, some []*Attempt[simWire]) {
	if c.watches { // nothing but an event would have it look again
		ctx = context.WithValue(ctx, simFaultless{}, true)
	}
	sent := time.Now()
	answers := make([]simAnswer, len(some))
	if c.exchange(ctx, func(first bool) {
		for i, a := range some {
			if first {
				answers[i] = c.v.standing(c.v.known[a.Wire.entry.id])
			}
		}
	}) != nil {
		return
	}
	for i, a := range some {
		if !answers[i].there {
			a.Gone()
		} else if s := standingOf(a, answers[i], sent); s.Kind == Granted && a.Limit > 0 && a.Waiting() {
			if s.Fences, _ = c.Refill(ctx, a); s.Fences.Count > 0 { // one's own: others may have seen the same revision
				a.Stands(s)
			}
		} else {
			a.Stands(s)
		}
	}
}

func (c *simClient) Drop(ctx context.Context, some []*Attempt[simWire]) {
	if c.lane != nil && c.below(6) == 0 {
		c.fallsSilent(c.ttl / 60) // a cut at the release
	}
	was := make([]Outcome, len(some))
	err := c.exchange(ctx, func(first bool) {
		for i, a := range some {
			if c.isDenied(a.Key) {
				continue
			}
			if w := c.v.drop(a.Wire.entry.id, a.Number, a.Instance); first {
				was[i] = w
			}
		}
	})
	for i, a := range some {
		if err != nil {
			a.Dropped(Unknown)
		} else if c.isDenied(a.Key) {
			a.DropRefused(errSimDenied)
		} else {
			a.Dropped(was[i])
		}
	}
}

func (c *simClient) change(ctx context.Context, a *Attempt[simWire], f func(*simEntry)) (Block, error) {
	var revision uint64
	err := c.exchange(ctx, func(first bool) {
		e := c.v.known[a.Wire.entry.id]
		if !first || e == nil || e.gone {
			return
		}
		c.v.revision++
		revision = c.v.revision
		f(e)
	})
	switch {
	case err != nil:
		return Block{}, err
	case revision == 0:
		return Block{}, distributed.ErrLeaseLost
	}
	return Block{revision * simBlock, simBlock}, nil
}

func (c *simClient) Refill(ctx context.Context, a *Attempt[simWire]) (Block, error) {
	return c.change(ctx, a, func(*simEntry) {})
}

func (c *simClient) Share(ctx context.Context, a *Attempt[simWire]) (Standing, error) {
	block, err := c.change(ctx, a, func(e *simEntry) {
		e.shared = true
		c.v.changed(e.key)
	})
	return Standing{Fences: block, Next: Now}, err
}

func (c *simClient) Close() {
	if c.lane != nil {
		c.lane.Flush(c.ttl) // which an Enter takes at most, and then what it has left
		c.lane.Shut()
		return
	}
	c.sessions.Close()
}

func (c *simClient) withFaults(are bool) { c.with(func() { c.faults = are }) }

// falls has the process fall silent now and then, for up to two TTLs.
func (c *simClient) falls() {
	for {
		select {
		case <-time.After(time.Duration(c.below(int64(20*c.ttl))) + 1):
		case <-c.ctx.Done():
			return
		}
		c.fallsSilent(time.Duration(c.below(int64(2 * c.ttl))))
	}
}

// fallsSilent has nothing that is sent for so long arrive.
func (c *simClient) fallsSilent(d time.Duration) {
	c.with(func() {
		if until := time.Now().Add(d + 1); until.After(c.silent) {
			c.silent = until
		}
	})
}

// simRenewer is a process without a session, which renews each of its leases.
type simRenewer struct{ *simClient }

func (c simRenewer) Renew(ctx context.Context, due []*Attempt[simWire]) {
	sent := time.Now()
	answers := make([]simAnswer, len(due))
	if c.exchange(ctx, func(first bool) {
		for i, a := range due {
			e := c.v.known[a.Wire.entry.id]
			if e == nil || e.turn.IsZero() || e.gone {
				continue
			}
			c.v.lives(e, e.ttl)
			if first {
				answers[i] = c.v.standing(e)
			}
		}
	}) != nil {
		return
	}
	for i, a := range due {
		if answers[i].there {
			a.Renewed(sent, answers[i].contended)
		} else {
			a.Gone()
		}
	}
}

// Detached implements Transferer, as Transfer.
func (c simRenewer) Detached(_ context.Context, d *Attempt[simWire], id string) error {
	d.Lane, d.Window = c.lane, d.Lasts
	d.Wire.entry = simEntry{id: "detached-" + id, key: d.Key, alone: c.simClient, number: d.Number, instance: d.Instance, ttl: 2 * d.Lasts}
	return nil
}

func (c simRenewer) Transfer(ctx context.Context, from, to *Attempt[simWire]) (Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, min(from.Window, to.Window))
	defer cancel()
	for tries := 0; ; tries++ {
		var got simAnswer
		sent := time.Now()
		err := c.exchange(ctx, func(first bool) {
			if g := c.v.transfer(from.Wire.entry.id, to.Wire.entry); first {
				got = g
			}
		})
		switch {
		case err != nil && tries < 2 && ctx.Err() == nil:
		case err != nil:
			return Standing{}, err
		case !got.there:
			return Standing{}, distributed.ErrLeaseLost
		default:
			return standingOf(to, got, sent), nil
		}
	}
}

func (c simRenewer) ClaimTime(*Attempt[simWire]) time.Duration { return c.ttl / 10 }

// newSimClient returns a process of a kind.
func newSimClient(ctx context.Context, v *simService, kind string, ttl time.Duration, seed1, seed2 uint64) *simClient {
	c := &simClient{v: v, ttl: ttl, rnd: rand.New(rand.NewPCG(seed1, seed2)), ctx: ctx, faults: true, present: map[*Attempt[simWire]]bool{}}
	set := Settings{Name: "sim", Grid: 8, LookMost: 3, DropMost: 2, Drops: 1 + int(seed1%2), DropsHere: int(seed2 % 3)}
	if c.watches = kind == simWatches; kind == simRenewals {
		set.Grid, set.Twice = 0, true
		set.Pause = func(tries int) time.Duration { return ttl / 50 * time.Duration(min(tries, 8)) }
		if seed1%3 == 0 {
			set.Looks, set.Apart = 1, func(enter func()) bool { return c.b.Go(enter) }
		}
		c.b = New(simRenewer{c}, set)
		c.lane = c.b.NewLane(ctx, nil)
	} else {
		c.b = New(c, set)
		c.sessions = NewSessions(c.b, SessionRules{Own: 2}, c.open)
	}
	v.mu.Lock()
	v.clients = append(v.clients, c)
	c.id = len(v.clients)
	v.mu.Unlock()
	if !c.watches {
		c.late.Go(c.falls)
	}
	return c
}

var errSimDenied = fmt.Errorf("denied: %w: %w", distributed.ErrUnavailable, distributed.ErrRefused)

func (c *simClient) isDenied(key string) (is bool) {
	c.with(func() { is = c.denies == key })
	return is
}

func (c *simClient) deny(key string) { c.with(func() { c.denies = key }) }

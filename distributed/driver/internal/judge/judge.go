// Package judge plays users of a lock in any order and says what is wrong: for tests of package driver and of what is built on it. A
// schedule is played in a testing/synctest bubble. Its faults are those of the service that the test simulates.
package judge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Process is a Backend under test, and what the judge asks of it beside.
type Process interface {
	Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error)
	Closed() bool
	// Waits reports that a place is neither granted nor lost.
	Waits(p distributed.Place) bool
	// Has reports that the service has the request of a lease or a place. It has no faults.
	Has(leaseOrPlace any) bool
	// MayBeLost reports that the service may have taken the lease away.
	MayBeLost(l distributed.Lease) bool
	// HasExpired reports that the service has let the lease expire, and would tell.
	HasExpired(l distributed.Lease) bool
	// Broken reports that an operator has ended a lease a moment ago, so that its holder may not know yet.
	Broken(l distributed.Lease) bool
	// Unlearned says what the holder of a lease should know by now, and does not. "": nothing.
	Unlearned(l distributed.Lease) string
	// Kept reports that the service has a lease, and not because of a request that came late.
	Kept(l distributed.Lease) bool
	// LeastLeft is what is left of a grant that was received at once. 0: any time.
	LeastLeft() time.Duration
	// Overdue says what should have become of a place that waits. "": nothing.
	Overdue(p distributed.Place) string
}

// World is the witness of one schedule.
type World struct {
	mu     sync.Mutex         // guards all below
	inside map[string][]*hold // by key
	fences map[string]uint64  // the last that was drawn inside
	counts map[string]int
	found  []string // violations

	detached []*detached // leases whose time has not passed, as far as is known
}

// hold is somebody who works under a lease, until he has said that he does not or the lease has expired by his clock.
type hold struct {
	p      Process
	l      distributed.Lease
	shared bool
	limit  int
}

// Failf notes what is wrong.
func (w *World) Failf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, fmt.Sprintf(format, args...))
}

// Count counts something that has happened.
func (w *World) Count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// enter has the witness see that nobody else is inside.
func (w *World) enter(key string, h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, most, readers := 1, h.limit, h.limit == 0
	for _, o := range w.inside[key] {
		if ended(o.l) || o.p.Broken(o.l) || h.p.Broken(h.l) {
			continue
		}
		if n, most, readers = n+1, max(most, o.limit), readers || o.limit == 0; !o.shared || !h.shared {
			w.found = append(w.found, fmt.Sprintf("two are inside %s", key))
		}
	}
	if n > most && !readers { // the one that was admitted last has the largest limit, or a larger one
		w.found = append(w.found, fmt.Sprintf("%d permits of at most %d are inside %s", n, most, key))
	}
	for _, d := range w.detached {
		if d.key == key && d.isKept() && time.Now().Before(d.until) {
			w.found = append(w.found, fmt.Sprintf("one is inside %s beside a detached lease", key))
		}
	}
	w.inside[key] = append(w.inside[key], h)
	w.counts["entries"]++
}

// ended reports that the holder of a lease knows that it has ended.
func ended(l distributed.Lease) bool { return isLost(l) || !l.Until().After(time.Now()) }

func isLost(l distributed.Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

func (w *World) leave(key string, h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, o := range w.inside[key] {
		if o == h {
			w.inside[key] = append(w.inside[key][:i:i], w.inside[key][i+1:]...)
			return
		}
	}
}

// fence checks that fences grow from writer to writer.
func (w *World) fence(p Process, key string, l distributed.Lease) {
	n, ok := l.NextFence()
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n <= w.fences[key] && !ended(l) && !p.Broken(l) {
		w.found = append(w.found, fmt.Sprintf("fence %d of %s after %d", n, key, w.fences[key]))
	}
	w.fences[key] = max(n, w.fences[key])
}

// User is one user of a process, who does one thing after the other.
type User struct {
	w    *World
	p    Process
	name string
	ttl  time.Duration
	rnd  *rand.Rand
	prev distributed.Lease
	key  string // of prev
}

func (u *User) upTo(d time.Duration) time.Duration {
	return time.Duration(u.rnd.Int64N(int64(d))) + 1
}

func (u *User) oneIn(n int) bool { return u.rnd.IntN(n) == 0 }

// NewUser returns a user of a process, whose leases last so long.
func (w *World) NewUser(p Process, name string, ttl time.Duration, rnd *rand.Rand) *User {
	return &User{w: w, p: p, name: name, ttl: ttl, rnd: rnd}
}

// Run takes so many turns.
func (u *User) Run(turns int) {
	for range turns {
		if u.prev == nil || u.oneIn(2) { // else a loop, which locks again at once
			time.Sleep(u.upTo(u.ttl / 4))
		}
		u.turn()
	}
	if u.prev != nil {
		_ = u.prev.Release(context.Background())
	}
}

func (u *User) turn() {
	if d := u.w.anyDetached(u.rnd); d != nil && u.oneIn(2) {
		u.adopt(d)
		return
	}
	req := distributed.Request{Key: "k" + fmt.Sprint(u.rnd.IntN(2)), Instance: u.name, TTL: u.ttl, NoWait: u.oneIn(6)}
	switch u.rnd.IntN(4) {
	case 0:
		req.Mode = distributed.Shared
	case 1:
		req.Mode, req.Limit = distributed.Shared, 1+u.rnd.IntN(2)
	}
	if u.prev != nil && (u.key == req.Key || u.oneIn(2)) {
		req.Prev, u.prev = u.prev, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if u.oneIn(8) {
		time.AfterFunc(u.upTo(u.ttl/50), cancel)
	}
	l, p, err := u.p.Enter(ctx, req)
	u.fresh(l)
	if old := req.Prev; old != nil {
		u.check(old, old.Release(context.Background())) // one that was of another key, or whose Enter has failed
	}
	switch {
	case err != nil:
		u.w.Count("errors")
	case l != nil:
		u.hold(req, l)
	case req.NoWait:
		u.w.Failf("a place without wait")
	default:
		u.wait(req, p)
	}
}

// wait waits for a place's turn, or leaves.
func (u *User) wait(req distributed.Request, p distributed.Place) {
	patience := time.After(u.upTo(6 * u.ttl))
	if u.oneIn(3) {
		patience = time.After(u.upTo(u.ttl / 20))
	}
	if u.oneIn(20) {
		u.away(p, patience)
		return
	}
	waits := len(p.Granted()) == 0
	select {
	case l, ok := <-p.Granted():
		if ok && waits {
			u.fresh(l)
		}
		if ok {
			u.hold(req, l)
		} else {
			u.w.Count("places lost")
		}
		return
	case <-patience:
	}
	if wrong := u.p.Overdue(p); wrong != "" {
		u.w.Failf("%s", wrong)
	}
	ctx, cancel := context.WithTimeout(context.Background(), u.upTo(u.ttl))
	begin := time.Now()
	err := p.Leave(ctx)
	if early := ctx.Err() == nil && time.Since(begin) < u.ttl/50; early && errors.Is(err, distributed.ErrUnavailable) &&
		!errors.Is(err, distributed.ErrRefused) && !errors.Is(err, distributed.ErrUnreached) && !u.p.Closed() {
		u.w.Failf("a Leave was given up at once: %v", err)
	}
	cancel()
	u.w.Count("left")
	if err == nil && !u.p.Closed() && u.p.Has(p) {
		u.w.Failf("a place that was left is there")
	}
	was := said(p) // it may have been lost before, or meanwhile
	time.Sleep(u.upTo(u.ttl / 10))
	if is := said(p); (was == "a lease" || is != was) && !u.p.Closed() {
		u.w.Failf("after Leave the channel has %s, and then %s", was, is)
	}
}

// said receives what a place's channel has.
func said(p distributed.Place) string {
	select {
	case _, ok := <-p.Granted():
		if ok {
			return "a lease"
		}
		return "an end"
	default:
		return "nothing"
	}
}

// fresh checks that there is time to claim a grant that was received at once, or that it is claimed.
func (u *User) fresh(l distributed.Lease) {
	if least := u.p.LeastLeft(); l != nil && least > 0 && time.Until(l.Until()) < least {
		u.w.Failf("a grant has %v left", time.Until(l.Until()))
	}
}

// away does not receive what the channel holds, which nobody claims then (rule K5).
func (u *User) away(p distributed.Place, patience <-chan time.Time) {
	for len(p.Granted()) == 0 {
		select {
		case <-time.After(u.ttl / 50):
		case <-patience:
			_ = p.Leave(context.Background())
			return
		}
		if !u.p.Waits(p) && len(p.Granted()) == 0 { // it was lost
			return
		}
	}
	time.Sleep(u.ttl)
	if l, ok := <-p.Granted(); ok {
		u.w.Count("unread")
		if l.Until().After(time.Now()) {
			u.w.Failf("a grant was claimed that nobody has read")
		}
		_ = l.Release(context.Background())
	}
}

// hold works under a lease, and releases it in one of many ways.
func (u *User) hold(req distributed.Request, l distributed.Lease) {
	answers := &watcher{u: u}
	l.Watch(answers, l)
	h := &hold{p: u.p, l: l, shared: req.Mode == distributed.Shared, limit: req.Limit}
	if ended(l) {
		u.w.Count("ended unread")
	} else {
		u.w.enter(req.Key, h)
	}
	if !h.shared {
		u.w.fence(u.p, req.Key, l)
	}
	long := time.Duration(1)
	if u.oneIn(10) {
		long = 6
	}
	for range u.rnd.IntN(4) {
		select {
		case <-time.After(long * u.upTo(u.ttl/3)):
		case <-l.Lost():
			u.w.Count("lost")
		}
		if wrong := u.p.Unlearned(l); wrong != "" {
			u.w.Failf("%s", wrong)
		}
		switch {
		case h.shared:
		case u.oneIn(6):
			u.w.leave(req.Key, h) // from the call on nobody works under it but readers
			was := l.Downgrade(context.Background()) == nil
			if h.shared = true; was && !ended(l) {
				u.w.enter(req.Key, h)
			}
		default:
			u.w.fence(u.p, req.Key, l)
			if u.oneIn(3) {
				_ = l.Refill(context.Background())
				u.w.fence(u.p, req.Key, l)
			}
		}
	}
	u.w.leave(req.Key, h)
	if h.shared || !u.oneIn(4) || !u.detach(req.Key, l) {
		u.release(req.Key, l, answers)
	}
}

func (u *User) release(key string, l distributed.Lease, answers *watcher) {
	keep := func() { // for a later Enter
		if u.prev != nil {
			_ = u.prev.Release(context.Background())
		}
		u.prev, u.key = l, key
	}
	switch u.rnd.IntN(6) {
	case 0:
		keep()
	case 1:
		l.Abandon()
		u.w.Count("abandoned")
	case 2:
		if l.StartRelease() {
			return
		}
		if u.oneIn(2) {
			time.Sleep(u.upTo(u.ttl / 20))
		}
		keep()
		time.AfterFunc(10*u.ttl, func() {
			if n := answers.released(); n != 1 && !u.p.Closed() {
				u.w.Failf("StartRelease was answered %d times", n)
			}
		})
	case 3:
		ctx, cancel := context.WithTimeout(context.Background(), u.upTo(u.ttl/50))
		u.check(l, l.Release(ctx))
		cancel()
		u.check(l, l.Release(context.Background()))
	default:
		u.check(l, l.Release(context.Background()))
	}
	if answers.bothLostAndReleased() {
		u.w.Failf("a lease was lost after its release had begun well")
	}
}

// check checks the answer to a release.
func (u *User) check(l distributed.Lease, err error) {
	lost := isLost(l)
	switch {
	case u.p.Closed():
	case err == nil && u.p.Has(l):
		u.w.Failf("a lease that was released is there")
	case err == nil && u.p.HasExpired(l):
		u.w.Failf("a lease was called released, and had expired")
	case errors.Is(err, distributed.ErrLeaseLost) && !lost && !u.p.MayBeLost(l):
		u.w.Failf("a lease was called lost, and was not")
	}
}

// watcher counts.
type watcher struct {
	u *User

	mu       sync.Mutex
	lost     int
	answered []error
}

func (s *watcher) LeaseLost(distributed.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost++
}

func (s *watcher) LeaseContended(distributed.Lease) {}

func (s *watcher) LeaseRenewed(distributed.Lease, time.Time, error) {}

func (s *watcher) LeaseReleased(l distributed.Lease, err error) {
	if errors.Is(err, distributed.ErrUnavailable) && !errors.Is(err, distributed.ErrRefused) && !s.u.p.Closed() && s.u.p.Kept(l) {
		s.u.w.Failf("a release was given up, and the service has the lease")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered = append(s.answered, err)
}

func (s *watcher) released() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.answered)
}

func (s *watcher) bothLostAndReleased() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost > 1 || s.lost > 0 && len(s.answered) > 0 && s.answered[0] == nil
}

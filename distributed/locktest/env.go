package locktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testseed"
)

const (
	// long is the TTL in cases about order. Its claim window (30 s) is far beyond patience, so nothing that a case
	// waits for can be the effect of an expiry.
	long = time.Minute
	// patience is how long a case waits for an event that should come at once. Only a failing case waits so long.
	patience = 10 * time.Second
)

// env is what a case works with: a fresh service, with helpers that make requests and check answers.
type env struct {
	TB
	Service
	ttl     time.Duration // in cases about time
	open    []distributed.Backend
	prefix  string
	members atomic.Int32
	closed  bool // the backend
}

func newEnv(t TB, f Fixture) *env {
	e := &env{TB: t, ttl: f.TTL, Service: f.Open(t)}
	e.prefix = fmt.Sprintf("locktest:%08x:", rand.Uint32()) // a real service still has keys of earlier runs
	e.open = []distributed.Backend{e.Backend}
	if e.Another != nil {
		e.open = append(e.open, e.Another())
	}
	t.Cleanup(func() {
		for _, b := range e.open {
			b.Close()
		}
	})
	return e
}

// key returns a name that nobody else uses.
func (e *env) key(name string) string { return e.prefix + name }

// random returns the source of a random case, and logs how to replay it if it fails.
func (e *env) random() *rand.Rand { return testseed.Rand(e) }

func upTo(rnd *rand.Rand, d time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(d))) }

// member is one instance that asks for locks.
type member struct {
	*env
	backend distributed.Backend
	name    string
}

// member returns a new instance. Instances are distributed over the processes in turn.
func (e *env) member() *member {
	return e.memberOf(e.open[int(e.members.Load())%len(e.open)])
}

func (e *env) memberOf(b distributed.Backend) *member {
	return &member{env: e, backend: b, name: fmt.Sprintf("%sinstance-%d", e.prefix, e.members.Add(1))}
}

// how changes a request from the usual one: exclusive, long, patient.
type how func(*distributed.Request)

func shared(r *distributed.Request)  { r.Mode = distributed.Shared }
func noWait(r *distributed.Request)  { r.NoWait = true }
func exclusive(*distributed.Request) {}

func prev(l distributed.Lease) how { return func(r *distributed.Request) { r.Prev = l } }
func lasting(d time.Duration) how  { return func(r *distributed.Request) { r.TTL = d } }
func timely() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// try makes a call with that time.
func try(call func(context.Context) error) error {
	ctx, cancel := timely()
	defer cancel()
	return call(ctx)
}

// request is one of this instance: exclusive, long, patient, if hows change nothing.
func (m *member) request(key string, hows ...how) distributed.Request {
	req := distributed.Request{Key: key, Instance: m.name, TTL: long}
	for _, h := range hows {
		h(&req)
	}
	return req
}

// enter makes a request and checks that the answer is a lease, or a place, or an error.
func (m *member) enter(ctx context.Context, key string, hows ...how) (distributed.Lease, distributed.Place, error) {
	m.Helper()
	l, p, err := m.backend.Enter(ctx, m.request(key, hows...))
	if strings.Contains(answer(l, p, err), " and ") {
		m.Errorf("Enter answered %s; want exactly one of them", answer(l, p, err))
	}
	return l, p, err
}

// answer describes an answer of Enter. Leases and places are not printed: others are writing to them.
func answer(l distributed.Lease, p distributed.Place, err error) string {
	var parts []string
	if l != nil {
		parts = append(parts, "a lease")
	}
	if p != nil {
		parts = append(parts, "a place")
	}
	if err != nil {
		parts = append(parts, fmt.Sprintf("error %q", err))
	}
	if parts == nil {
		return "nothing and no error"
	}
	return strings.Join(parts, " and ")
}

// try enters with the time that a case has.
func (m *member) try(key string, hows ...how) (distributed.Lease, distributed.Place, error) {
	m.Helper()
	ctx, cancel := timely()
	defer cancel()
	return m.enter(ctx, key, hows...)
}

// lease enters and must get a lease at once.
func (m *member) lease(key string, hows ...how) distributed.Lease {
	m.Helper()
	l, p, err := m.try(key, hows...)
	if l == nil {
		m.Fatalf("Enter answered %s; want a lease", answer(l, p, err))
	}
	return l
}

// place enters and must be queued.
func (m *member) place(key string, hows ...how) distributed.Place {
	m.Helper()
	l, p, err := m.try(key, hows...)
	if p == nil {
		m.Fatalf("Enter answered %s; want a place", answer(l, p, err))
	}
	return p
}

// queue has so many instances queued.
func (e *env) queue(key string, n int, hows ...how) []distributed.Place {
	e.Helper()
	places := make([]distributed.Place, n)
	for i := range places {
		places[i] = e.member().place(key, hows...)
	}
	return places
}

// refused enters with NoWait and must get ErrHeld.
func (m *member) refused(key string, hows ...how) {
	m.Helper()
	_ = m.refusal(key, hows...)
}

// refusal is refused, and returns the error, which may say more.
func (m *member) refusal(key string, hows ...how) error {
	m.Helper()
	l, p, err := m.try(key, append(hows, noWait)...)
	if !errors.Is(err, distributed.ErrHeld) {
		m.Fatalf("Enter with NoWait answered %s; want ErrHeld", answer(l, p, err))
	}
	return err
}

// granted waits for the lease of a place.
func (e *env) granted(p distributed.Place) distributed.Lease {
	e.Helper()
	select {
	case l, ok := <-p.Granted():
		if !ok {
			e.Fatalf("the place was lost; want a lease")
		}
		return l
	case <-time.After(patience):
		e.Fatalf("no lease was granted within %v", patience)
	}
	return nil
}

// waiting asserts that none of the places is granted or lost. It gives a wrong grant some time to arrive.
func (e *env) waiting(places ...distributed.Place) {
	e.Helper()
	e.blink()
	for i, p := range places {
		select {
		case _, granted := <-p.Granted():
			e.Fatalf("place %d of those that must wait: granted %t, lost %t", i, granted, !granted)
		default:
		}
	}
}

// release releases the leases, which must return nil.
func (e *env) release(leases ...distributed.Lease) {
	e.Helper()
	for _, l := range leases {
		if err := try(l.Release); err != nil {
			e.Fatalf("Release: %v", err)
		}
	}
}

// passOn releases the lease, and that of each place when it is granted.
func (e *env) passOn(l distributed.Lease, places ...distributed.Place) {
	e.Helper()
	e.release(l)
	for _, p := range places {
		e.release(e.granted(p))
	}
}

// lostRelease releases a lost lease, which must return ErrLeaseLost.
func (e *env) lostRelease(l distributed.Lease) {
	e.Helper()
	if err := try(l.Release); !errors.Is(err, distributed.ErrLeaseLost) {
		e.Fatalf("Release of a lost lease: %v; want ErrLeaseLost", err)
	}
}

func (e *env) leave(p distributed.Place) {
	e.Helper()
	if err := try(p.Leave); err != nil {
		e.Fatalf("Leave: %v", err)
	}
}

// held asserts that the lease is alive: for its holder, and for all others. A renewal may be late on a busy machine.
func (e *env) held(key string, l distributed.Lease) {
	e.Helper()
	e.eventually("the lease is healthy", func() bool { return gone(l) || l.Healthy() })
	if gone(l) {
		e.Fatalf("lease is lost")
	}
	e.member().refused(key)
}

// free waits until a newcomer gets the lock, since nothing may be left of earlier leases and places.
func (e *env) free(key string) {
	e.Helper()
	m := e.member()
	e.eventually("the key is free", func() bool {
		l, _, err := m.try(key, noWait)
		if l != nil {
			e.release(l)
		} else if !errors.Is(err, distributed.ErrHeld) {
			e.Fatalf("Enter with NoWait: %v", err)
		}
		return l != nil
	})
}

// late fails a case that took too long. Under go test -short it only logs that, for a busy machine may be the cause.
func (e *env) late(format string, args ...any) {
	e.Helper()
	if testing.Short() {
		e.Logf(format, args...)
		return
	}
	e.Errorf(format, args...)
}

// lost waits until the lease is reported lost.
func (e *env) lost(l distributed.Lease) {
	e.Helper()
	select {
	case <-l.Lost():
	case <-time.After(patience):
		e.Fatalf("Lost was not closed within %v", patience)
	}
	if l.Healthy() {
		e.Errorf("a lost lease is healthy")
	}
}

// letExpire lets a lease expire.
func (e *env) letExpire(l distributed.Lease) {
	e.Helper()
	l.Abandon()
	e.lost(l)
}

// eventually polls until the condition is true.
func (e *env) eventually(what string, cond func() bool) {
	e.Helper()
	for start := time.Now(); !cond(); e.blink() {
		if time.Since(start) > patience {
			e.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// blink is the pause between two looks.
func (e *env) blink() { time.Sleep(e.ttl / 40) }

// gone reports whether the lease is known to be lost.
func gone(l distributed.Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

// fence draws a fence, and refills when the reserve is used up.
func (e *env) fence(l distributed.Lease) uint64 {
	e.Helper()
	n, err := e.tryFence(l)
	if err != nil {
		e.Fatalf("Refill: %v", err)
	}
	return n
}

func (e *env) tryFence(l distributed.Lease) (uint64, error) {
	e.Helper()
	if n, ok := l.NextFence(); ok {
		return n, nil
	}
	if err := try(l.Refill); errors.Is(err, errors.ErrUnsupported) {
		e.Skipf("no fences")
	} else if err != nil {
		return 0, err
	}
	n, ok := l.NextFence()
	if !ok {
		e.Fatalf("no fence after Refill")
	}
	return n, nil
}

// brief gets a lease that lasts for the TTL of cases about time, and draws a fence. On a busy machine the answer may come too late, or the
// lease expires before it has a fence: then it enters again.
func (m *member) brief(key string, hows ...how) (l distributed.Lease, fence uint64) {
	m.Helper()
	ctx, cancel := timely()
	defer cancel()
	var err error
	for ; ctx.Err() == nil; m.blink() {
		var p distributed.Place
		if l, p, err = m.enter(ctx, key, append(hows, lasting(m.ttl))...); p != nil {
			select {
			case l = <-p.Granted(): // nil: the place was lost
			case <-ctx.Done():
			}
		}
		if l == nil {
			continue
		}
		if fence, err = m.tryFence(l); err == nil {
			return l, fence
		}
		_ = try(l.Release)
	}
	m.Fatalf("no lease with a fence within %v: %v", patience, err)
	return nil, 0
}

// above asserts that a fence is greater than an earlier one, and returns it.
func (e *env) above(earlier, later uint64) uint64 {
	e.Helper()
	if later <= earlier {
		e.Fatalf("fence %d after %d; want it greater", later, earlier)
	}
	return later
}

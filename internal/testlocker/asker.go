package testlocker

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
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

// Patience is how long a test waits for what should happen soon. Only a test that fails waits so long.
const Patience = 30 * time.Second

// Asker makes requests for a key. Those that a busy machine makes late are made again.
type Asker struct {
	T   *testing.T
	B   distributed.Backend
	Key string
	TTL time.Duration
}

// Change changes a request from the usual one: exclusive, patient.
type Change = func(*distributed.Request)

// Try enters.
func (a Asker) Try(instance string, change ...Change) (distributed.Lease, distributed.Place, error) {
	req := distributed.Request{Key: a.Key, Instance: instance, TTL: a.TTL}
	for _, f := range change {
		f(&req)
	}
	return enter(a.T.Context(), a.B, req)
}

// Enter enters, and must be answered.
func (a Asker) Enter(instance string, change ...Change) (distributed.Lease, distributed.Place) {
	a.T.Helper()
	l, p, err := a.Try(instance, change...)
	if err != nil {
		a.T.Fatal(err)
	}
	return l, p
}

// Lease enters, and must get a lease at once.
func (a Asker) Lease(instance string, change ...Change) distributed.Lease {
	a.T.Helper()
	l, _ := a.Enter(instance, change...)
	if l == nil {
		a.T.Fatal("queued, where a lease was expected")
	}
	return l
}

// Place enters, and must be queued.
func (a Asker) Place(instance string, change ...Change) distributed.Place {
	a.T.Helper()
	_, p := a.Enter(instance, change...)
	if p == nil {
		a.T.Fatal("a lease, where a place was expected")
	}
	return p
}

// AsReader makes a request one of a reader.
func AsReader(r *distributed.Request) { r.Mode = distributed.Shared }

// ForOneOf makes a request one for a permit.
func ForOneOf(n int) Change {
	return func(r *distributed.Request) { r.Mode, r.Limit = distributed.Shared, n }
}

// Lasting sets the TTL of a request.
func Lasting(d time.Duration) Change { return func(r *distributed.Request) { r.TTL = d } }

// Granted waits for the lease of a place. It is nil if the place was lost.
func Granted(t *testing.T, p distributed.Place) distributed.Lease {
	t.Helper()
	select {
	case l := <-p.Granted():
		return l
	case <-time.After(Patience):
		t.Fatal("neither granted nor lost")
		return nil
	}
}

// Lost waits until a lease is lost.
func Lost(t *testing.T, l distributed.Lease) {
	t.Helper()
	select {
	case <-l.Lost():
	case <-time.After(Patience):
		t.Fatal("a lease was not reported lost")
	}
}

// Release releases a lease.
func Release(t *testing.T, l distributed.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if l == nil {
		t.Fatal("no lease")
	}
	if err := l.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

// Claimed waits until a lease has been renewed.
func Claimed(t *testing.T, l distributed.Lease) {
	t.Helper()
	window := l.Until()
	untilNil(t, func() error {
		if l.Until().After(window) {
			return nil
		}
		return errors.New("not claimed")
	})
}

// Fence draws a fence.
func Fence(t *testing.T, l distributed.Lease) uint64 {
	t.Helper()
	n, ok := l.NextFence()
	if !ok {
		t.Fatal("no fence left")
	}
	return n
}

// Ready waits until the backend answers.
func Ready(t *testing.T, b distributed.Backend) {
	t.Helper()
	untilNil(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return b.Ping(ctx)
	})
}

// Counted counts the exchanges of a backend of one kind, until the test ends.
func Counted(t *testing.T, b distributed.Observable, kind func(distributed.Exchange) bool) *atomic.Int64 {
	n := new(atomic.Int64)
	t.Cleanup(b.Observe(func(e distributed.Exchange) {
		if kind(e) {
			n.Add(1)
		}
	}))
	return n
}

// ExpiryWhileHeld cuts the holder's backend off: it knows that its lease has ended before the next one is let in, and has lost it.
func ExpiryWhileHeld(t *testing.T, holder, other Asker, cut func(bool)) {
	t.Parallel()
	l := holder.Lease("a")
	before := Fence(t, l)
	p := other.Place("b", Lasting(10*time.Minute))
	Claimed(t, l)
	cut(true)
	next := Granted(t, p)
	at := time.Now()
	if next == nil || !distributed.Over(at, l.Until()) {
		t.Errorf("let in %v before the lease of the one before had expired", l.Until().Sub(at))
	}
	if n := Fence(t, next); n <= before {
		t.Errorf("fence %d after %d", n, before)
	}
	Lost(t, l)
	cut(false)
	Ready(t, holder.B) // with a new session
	if err := l.Release(t.Context()); !errors.Is(err, distributed.ErrLeaseLost) {
		t.Errorf("Release of a lost lease: %v", err)
	}
	Release(t, next)
	Release(t, holder.Lease("a"))
}

// Restarts kills the server and starts it again: leases and places outlive that, if it is short enough.
func Restarts(t *testing.T, a Asker, server *testproc.Server) {
	long := Lasting(10 * time.Minute)
	l := a.Lease("a", long)
	before := Fence(t, l)
	p := a.Place("b", long)
	healthy := func(is bool) {
		t.Helper()
		untilNil(t, func() error {
			if l.Healthy() != is {
				return fmt.Errorf("the lease is healthy: %t", !is)
			}
			return nil
		})
	}
	server.Kill()
	healthy(false)
	server.Restart()
	healthy(true)
	Release(t, l)
	next := Granted(t, p)
	if next == nil || Fence(t, next) <= before {
		t.Fatal("no lease with a greater fence")
	}
	Release(t, next)
	Release(t, a.Lease("c"))
}

// ManyPermits has so many permits held, which are more than are watched one by one, and some granted when others are released.
func ManyPermits(t *testing.T, a Asker, limit int) {
	t.Parallel()
	one, long := ForOneOf(limit), Lasting(10*time.Minute)
	held := make([]distributed.Lease, limit)
	for i := range held {
		held[i] = a.Lease(fmt.Sprint("h", i), one, long)
	}
	for _, p := range []distributed.Place{a.Place("p", one, long), a.Place("next", one, long)} {
		i := rand.IntN(limit)
		Release(t, held[i])
		held[i] = Granted(t, p)
	}
	for _, l := range held {
		Release(t, l)
	}
}

// RefusesOtherFormats asks for locks that another version of wllock has in format 9, which write writes: every kind of request is refused by
// name, at once.
func RefusesOtherFormats(t *testing.T, a Asker, write func(key string)) {
	t.Helper()
	for i, kind := range []Change{
		func(*distributed.Request) {}, AsReader, ForOneOf(2),
		func(r *distributed.Request) { r.NoWait = true },
		func(r *distributed.Request) { AsReader(r); r.NoWait = true },
	} {
		a.Key = fmt.Sprint("other-", i)
		write(a.Key)
		began := time.Now()
		l, p, err := a.Try("other", kind)
		if errors.Is(err, errors.ErrUnsupported) { // permits
			continue
		}
		if l != nil || p != nil || !errors.Is(err, distributed.ErrRefused) || !strings.Contains(err.Error(), "format 9, and this process knows format ") {
			t.Fatalf("%v, %v, %v; want a refusal that names both formats", l, p, err)
		}
		testscope.InTime(t, time.Since(began), time.Second, "a refusal")
	}
}

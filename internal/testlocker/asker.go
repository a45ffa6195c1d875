package testlocker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
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

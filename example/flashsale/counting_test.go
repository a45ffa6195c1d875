package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/distributed/memlock"
)

// script is a backend that answers an Enter with what it was given, and remembers what it was asked.
type script struct {
	distributed.Backend
	lease distributed.Lease
	place distributed.Place
	asked distributed.Request
}

func (s *script) Enter(_ context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	s.asked = req
	return s.lease, s.place, nil
}

// callback is a lease that calls back at once.
type callback struct {
	distributed.Lease
	watcher  distributed.Watcher
	until    time.Time
	released int
}

func (l *callback) At(time.Time) (time.Duration, bool) { return 0, false }
func (l *callback) Until() time.Time                   { return l.until }
func (l *callback) Watch(w distributed.Watcher)        { l.watcher = w }
func (l *callback) StartRelease() bool                 { l.watcher.LeaseReleased(l, nil); return false }
func (l *callback) Refill(context.Context) error       { return nil }
func (l *callback) Release(context.Context) error {
	l.released++
	return nil
}

// told is a Watcher that remembers of which lease it was told.
type told struct{ lost, wanted, released distributed.Watched }

func (o *told) LeaseLost(l distributed.Watched)              { o.lost = l }
func (o *told) LeaseWanted(l distributed.Watched)            { o.wanted = l }
func (o *told) LeaseReleased(l distributed.Watched, _ error) { o.released = l }

func TestCountingCounts(t *testing.T) {
	ctx := t.Context()
	inner := &callback{}
	c := &counting{Backend: &script{lease: inner}}
	lease, place, err := c.Enter(ctx, distributed.Request{})
	require.NoError(t, err)
	assert.Nil(t, place)
	watched := distributed.AsWatched(lease)
	watched.Watch(&told{})
	watched.StartRelease()
	require.NoError(t, lease.Release(ctx))
	require.NoError(t, lease.Refill(ctx))
	assert.EqualValues(t, 4, c.requests.Load())
}

func TestCountingKeepsTheAbilitiesOfALease(t *testing.T) {
	inner := &callback{}
	backend := &script{lease: inner}
	c := &counting{Backend: backend}
	lease, _, _ := c.Enter(t.Context(), distributed.Request{})

	var watcher told
	watched := distributed.AsWatched(lease)
	watched.Watch(&watcher)
	assert.Same(t, lease, watched, "it needs no goroutine to be watched")
	inner.watcher.LeaseLost(inner)
	inner.watcher.LeaseWanted(inner)
	watched.StartRelease()
	assert.Equal(t, told{lost: watched, wanted: watched, released: watched}, watcher, "the watcher knows the outer lease only")

	_, _, _ = c.Enter(t.Context(), distributed.Request{Prev: distributed.Unwatched(watched)})
	assert.Same(t, inner, backend.asked.Prev, "the backend knows the inner lease only")
	_, _, _ = c.Enter(t.Context(), distributed.Request{})
	assert.Nil(t, backend.asked.Prev)
}

func TestCountingClaimsNoAbilityThatALeaseHasNot(t *testing.T) {
	inner := struct{ distributed.Lease }{}
	backend := &script{lease: inner}
	c := &counting{Backend: backend}
	lease, _, _ := c.Enter(t.Context(), distributed.Request{})
	_, ok := lease.(distributed.Watched)
	assert.False(t, ok)
	_, _, _ = c.Enter(t.Context(), distributed.Request{Prev: lease})
	assert.Equal(t, inner, backend.asked.Prev)
}

// queued is a place whose grant the test decides.
type queued struct {
	granted chan distributed.Lease
	left    int
}

func (p *queued) Granted() <-chan distributed.Lease { return p.granted }
func (p *queued) Leave(context.Context) error {
	p.left++
	return nil
}

func enterQueue(t *testing.T) (*queued, distributed.Place) {
	t.Helper()
	inner := &queued{granted: make(chan distributed.Lease, 1)}
	_, place, err := (&counting{Backend: &script{place: inner}}).Enter(t.Context(), distributed.Request{})
	require.NoError(t, err)
	return inner, place
}

func TestCountingWrapsAGrant(t *testing.T) {
	inner, place := enterQueue(t)
	lease := &callback{until: time.Now().Add(time.Hour)}
	inner.granted <- lease
	got := <-place.Granted()
	assert.Same(t, lease, unwrap(got))
	require.NoError(t, place.Leave(t.Context()))
	assert.Zero(t, lease.released, "whoever has read the grant owns it")
}

func TestCountingGivesBackAGrantThatNobodyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, place := enterQueue(t)
		lease := &callback{until: time.Now().Add(time.Second)}
		inner.granted <- lease
		synctest.Wait() // until it waits for its receiver
		require.NoError(t, place.Leave(t.Context()))
		assert.Equal(t, 1, lease.released)
	})
}

func TestCountingTakesBackAGrantAfterItsClaimWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, place := enterQueue(t)
		lease := &callback{until: time.Now().Add(time.Second)}
		inner.granted <- lease
		time.Sleep(time.Second)
		synctest.Wait()
		_, ok := <-place.Granted()
		assert.False(t, ok, "the place was lost")
		assert.Equal(t, 1, lease.released)
	})
}

func TestCountingLeaves(t *testing.T) {
	inner, place := enterQueue(t)
	require.NoError(t, place.Leave(t.Context()))
	assert.Equal(t, 1, inner.left)
	select {
	case <-place.Granted():
		t.Fatal("after Leave nothing is delivered")
	default:
	}
}

func TestCountingTellsOfALostPlace(t *testing.T) {
	inner, place := enterQueue(t)
	close(inner.granted)
	_, ok := <-place.Granted()
	assert.False(t, ok)
	require.NoError(t, place.Leave(t.Context()))
}

func TestCountingOverMemory(t *testing.T) {
	ctx := t.Context()
	backend := memlock.New()
	defer func() { _ = backend.Close() }()
	c := &counting{Backend: backend}
	ask := distributed.Request{Key: "s:n:k", Instance: "a", TTL: leaseTTL}
	first, _, err := c.Enter(ctx, ask)
	require.NoError(t, err)
	ask.Instance = "b"
	_, place, err := c.Enter(ctx, ask)
	require.NoError(t, err)

	ask.Instance, ask.Prev = "a", first
	_, again, err := c.Enter(ctx, ask)
	require.NoError(t, err)
	second := <-place.Granted()
	require.NoError(t, second.Release(ctx))
	third := <-again.Granted()
	require.NoError(t, third.Release(ctx))
	assert.EqualValues(t, 5, c.requests.Load())
}

// What counts requests must be as good a backend as the one it counts for.
func TestCountingConforms(t *testing.T) {
	locktest.Run(t, locktest.Fixture{Bubble: true, Open: func(locktest.TB) locktest.Service {
		b := memlock.New()
		return locktest.Service{Backend: &counting{Backend: b}, Expire: b.Expire, Cut: b.Partition}
	}})
}

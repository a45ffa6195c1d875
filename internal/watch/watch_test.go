package watch_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 6 * time.Second

// plain hides the optional abilities of a lease.
type plain struct{ distributed.Lease }

// decorated is a wrapper with Unwrap.
type decorated struct{ distributed.Lease }

func (d *decorated) Unwrap() distributed.Lease { return d.Lease }

// witness records the events of a Watcher.
type witness struct {
	mu                       sync.Mutex
	lost, contended, renewed []distributed.Lease
	released                 []error
}

func (w *witness) note(to *[]distributed.Lease, l distributed.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*to = append(*to, l)
}

func (w *witness) LeaseLost(l distributed.Lease)      { w.note(&w.lost, l) }
func (w *witness) LeaseContended(l distributed.Lease) { w.note(&w.contended, l) }
func (w *witness) LeaseReleased(_ distributed.Lease, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.released = append(w.released, err)
}

func (w *witness) LeaseRenewed(l distributed.Lease, _ time.Time, err error) {
	if err == nil {
		w.note(&w.renewed, l)
	}
}

// bubble runs f with a backend in a bubble, which fails if a goroutine is left.
func bubble(t *testing.T, f func(t *testing.T, b *memlock.Backend)) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		defer func() { require.NoError(t, b.Close()) }()
		f(t, b)
	})
}

func enter(t *testing.T, b *memlock.Backend, req distributed.Request) distributed.Lease {
	t.Helper()
	req.Key, req.Instance, req.TTL = "s:n:k", "a", ttl
	l, _, err := b.Enter(t.Context(), req)
	require.NoError(t, err)
	return l
}

func TestAsyncLeaseStaysItself(t *testing.T) {
	bubble(t, func(t *testing.T, b *memlock.Backend) {
		l := enter(t, b, distributed.Request{})
		assert.Same(t, l, watch.Async(l))
		watch.Stop(watch.Async(l))
		require.NoError(t, l.Release(t.Context()))
	})
}

func TestPlainLeaseIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, b *memlock.Backend) {
		w, original := new(witness), &plain{enter(t, b, distributed.Request{})}
		l := watch.Async(original)
		l.Watch(w, l)
		l.StartRelease()
		synctest.Wait()
		assert.Equal(t, []error{nil}, w.released)
		found, _ := distributed.As[*plain](l)
		assert.Same(t, original, found)
		assert.NoError(t, l.Release(context.Background()), "again")
		time.Sleep(ttl)
		synctest.Wait()
		assert.Empty(t, w.lost)
	})
}

// An Enter that names the lease as Prev releases it, and only its caller can stop the goroutine.
func TestPollingStopsAfterReleaseAsPrev(t *testing.T) {
	bubble(t, func(t *testing.T, b *memlock.Backend) {
		w := new(witness)
		l := watch.Async(&decorated{enter(t, b, distributed.Request{})})
		l.Watch(w, l)
		next := enter(t, b, distributed.Request{Prev: l})
		watch.Stop(l)
		time.Sleep(ttl)
		assert.Empty(t, w.lost)
		require.NoError(t, next.Release(t.Context()))
	})
}

func TestPlainLeaseIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, b *memlock.Backend) {
		w := new(witness)
		l := watch.Async(&plain{enter(t, b, distributed.Request{})})
		l.Watch(w, l)
		b.Expire("s:n:k")
		time.Sleep(ttl)
		synctest.Wait()
		assert.Equal(t, []distributed.Lease{l}, w.lost)
		assert.Empty(t, w.renewed, "an opaque wrapper hides its lease")
		l.StartRelease()
		synctest.Wait()
		assert.Equal(t, []error{distributed.ErrLeaseLost}, w.released)
	})
}

// A decorated lease passes on the events of the lease inside, with the decorator as their lease.
func TestDecoratedLeaseReports(t *testing.T) {
	bubble(t, func(t *testing.T, b *memlock.Backend) {
		w := new(witness)
		l := watch.Async(&decorated{enter(t, b, distributed.Request{})})
		l.Watch(w, l)
		time.Sleep(ttl)
		synctest.Wait()
		assert.NotEmpty(t, w.renewed)
		_, place, err := b.Enter(t.Context(), distributed.Request{Key: "s:n:k", Instance: "b", TTL: ttl})
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []distributed.Lease{l}, w.contended)
		b.Expire("s:n:k")
		time.Sleep(ttl)
		synctest.Wait()
		assert.Equal(t, []distributed.Lease{l}, w.lost, "once")
		require.NoError(t, place.Leave(t.Context()))
		for _, r := range w.renewed {
			assert.Same(t, l, r)
		}
	})
}

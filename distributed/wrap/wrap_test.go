package wrap_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/distributed/wrap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counting is a decorator: it counts the requests to a backend.
type counting struct {
	distributed.Backend
	requests atomic.Int64
}

func (c *counting) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	c.requests.Add(1)
	lease, place, err := c.Backend.Enter(ctx, req)
	if lease != nil {
		lease = c.lease(lease)
	}
	if place != nil {
		place = wrap.Place(place, c.lease)
	}
	return lease, place, err
}

// Unwrap lets InspectorOf find what the decorator does not have.
func (c *counting) Unwrap() distributed.Backend { return c.Backend }

func (c *counting) lease(l distributed.Lease) distributed.Lease {
	return wrap.Releasing(l, func(ctx context.Context) error {
		c.requests.Add(1)
		return l.Release(ctx)
	})
}

func Example() {
	ctx, memory := context.Background(), memlock.New()
	defer memory.Close()
	backend := &counting{Backend: memory}
	lease, _, _ := backend.Enter(ctx, distributed.Request{Key: "order:product:1000", Instance: "a", TTL: time.Second})
	_ = lease.Release(ctx)
	fmt.Println(backend.requests.Load())
	// Output: 2
}

// A decorated backend must pass the same suite.
func TestDecoratedBackendConforms(t *testing.T) {
	locktest.Run(t, locktest.Fixture{Bubble: true, Open: func(locktest.TB) locktest.Service {
		b := memlock.New()
		return locktest.Service{Backend: &counting{Backend: b}, Expire: b.Expire, Cut: b.Partition}
	}})
}

// granted runs a test of a decorated place whose grant has just come, one of a second.
func granted(t *testing.T, f func(t *testing.T, b *counting, place distributed.Place)) {
	synctest.Test(t, func(t *testing.T) {
		memory := memlock.New()
		defer memory.Close()
		b := &counting{Backend: memory}
		held, _, err := b.Enter(t.Context(), distributed.Request{Key: "a:b:c", Instance: "a", TTL: time.Second})
		require.NoError(t, err)
		_, place, err := b.Enter(t.Context(), distributed.Request{Key: "a:b:c", Instance: "b", TTL: time.Second})
		require.NoError(t, err)
		require.NoError(t, held.Release(t.Context()))
		f(t, b, place)
	})
}

// The grant of a place is wrapped, too. It is its receiver's from then on, also when its claim window is over.
func TestGrantIsWrapped(t *testing.T) {
	granted(t, func(t *testing.T, b *counting, place distributed.Place) {
		lease := <-place.Granted()
		require.NoError(t, place.Leave(t.Context()))
		time.Sleep(2 * time.Second)
		require.True(t, lease.Healthy())
		require.NoError(t, lease.Release(t.Context()))
		require.EqualValues(t, 4, b.requests.Load())
	})
}

func TestUnreadGrantIsReleasedAfterItsClaimWindow(t *testing.T) {
	granted(t, func(t *testing.T, b *counting, place distributed.Place) {
		window := distributed.ClaimWindow(time.Second)
		time.Sleep(window * 9 / 10)
		require.EqualValues(t, 3, b.requests.Load())
		time.Sleep(window / 10)
		synctest.Wait()
		require.EqualValues(t, 4, b.requests.Load(), "it is released")
		_, ok := <-place.Granted()
		require.False(t, ok, "the place was lost")
	})
}

// proving is a backend with an opinion.
type proving struct{ *memlock.Backend }

func (proving) Probe(context.Context, distributed.Probe) error { return errors.New("not today") }

// TestProberIsFoundBehindADecorator: a readiness check asks the backend that would grant the lock.
func TestProberIsFoundBehindADecorator(t *testing.T) {
	memory := memlock.New()
	defer memory.Close()
	p, ok := distributed.ProberOf(&counting{Backend: &counting{Backend: proving{memory}}})
	require.True(t, ok)
	require.EqualError(t, p.Probe(t.Context(), distributed.Probe{Key: "a:b:c", TTL: time.Second}), "not today")
	_, ok = distributed.ProberOf(nil)
	require.False(t, ok)
}

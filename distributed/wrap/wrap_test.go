package wrap_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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

// grant is a lease that counts its releases.
type grant struct {
	distributed.Lease
	until    time.Time
	released int
}

func (l *grant) Until() time.Time { return l.until }
func (l *grant) Release(context.Context) error {
	l.released++
	return nil
}

// queued is a place whose grant the test decides.
type queued struct {
	granted chan distributed.Lease
	left    int
}

func (p *queued) Granted() <-chan distributed.Lease { return p.granted }
func (p *queued) Holder() string                    { return "" }
func (p *queued) Leave(context.Context) error {
	p.left++
	return nil
}

func newPlace() (*queued, distributed.Place) {
	inner := &queued{granted: make(chan distributed.Lease, 1)}
	return inner, wrap.Place(inner, new(counting).lease)
}

func TestGrantIsWrapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, place := newPlace()
		lease := &grant{until: time.Now().Add(time.Second)}
		inner.granted <- lease
		got := <-place.Granted()
		assert.NotEqual(t, distributed.Lease(lease), got)
		found, _ := distributed.As[*grant](got)
		assert.Same(t, lease, found)
		require.NoError(t, place.Leave(t.Context()))
		time.Sleep(2 * time.Second)
		assert.Zero(t, lease.released, "a grant that was received is its receiver's")
	})
}

func TestLeaveReleasesAnUnreadGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, place := newPlace()
		lease := &grant{until: time.Now().Add(time.Second)}
		inner.granted <- lease
		synctest.Wait() // until the grant is in the relay
		require.NoError(t, place.Leave(t.Context()))
		assert.Equal(t, 1, lease.released)
	})
}

func TestUnreadGrantIsReleasedAfterItsClaimWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, place := newPlace()
		lease := &grant{until: time.Now().Add(time.Second)}
		inner.granted <- lease
		time.Sleep(time.Second)
		synctest.Wait()
		_, ok := <-place.Granted()
		assert.False(t, ok, "the place was lost")
		assert.Equal(t, 1, lease.released)
	})
}

func TestLeave(t *testing.T) {
	inner, place := newPlace()
	require.NoError(t, place.Leave(t.Context()))
	assert.Equal(t, 1, inner.left)
	select {
	case <-place.Granted():
		t.Fatal("after Leave nothing is delivered")
	default:
	}
}

func TestLostPlaceIsReported(t *testing.T) {
	inner, place := newPlace()
	close(inner.granted)
	_, ok := <-place.Granted()
	assert.False(t, ok)
	require.NoError(t, place.Leave(t.Context()))
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

// Package wrap helps to decorate a backend: to count, log, delay or refuse its requests.
//
// A decorator embeds a distributed.Backend and overrides Enter. It wraps the leases that Enter returns in a type that embeds
// distributed.Lease and has a method Unwrap() distributed.Lease. By that method the backend finds its own lease in Request.Prev (see
// distributed.As), so the decorator need not unwrap it. Releasing wraps a lease for a decorator that changes only releases, and Place wraps
// the leases that a place delivers. If the decorator has a method Unwrap() distributed.Backend, distributed.InspectorOf and
// distributed.ProberOf find the Inspector and the Prober that it wraps. The example counts requests.
package wrap

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Place returns p with every lease that it delivers replaced by lease(l). It takes a goroutine, which ends with the grant or with Leave.
//
// To p it looks as if every grant were received at once. So Place itself does what a backend does with a grant that is not received: it releases
// the grant when its claim window has passed (rule K5).
func Place(p distributed.Place, lease func(distributed.Lease) distributed.Lease) distributed.Place {
	r := &relay{
		inner: p, wrap: lease,
		granted: make(chan distributed.Lease, 1), leaving: make(chan struct{}), relayed: make(chan struct{}),
	}
	go r.relay()
	return r
}

// Releasing returns l with release in place of l's own Release and StartRelease. Each StartRelease takes a goroutine.
func Releasing(l distributed.Lease, release func(ctx context.Context) error) distributed.Lease {
	return &releasing{Lease: l, release: release}
}

type releasing struct {
	distributed.Lease
	release func(context.Context) error
	watcher distributed.Watcher // set by Watch, before StartRelease
	as      distributed.Lease   // the same
}

func (l *releasing) Unwrap() distributed.Lease { return l.Lease }

func (l *releasing) Watch(w distributed.Watcher, as distributed.Lease) {
	l.watcher, l.as = w, as
	l.Lease.Watch(w, as)
}

func (l *releasing) Release(ctx context.Context) error { return l.release(ctx) }

func (l *releasing) StartRelease() bool {
	go func() {
		ctx, cancel := context.WithDeadline(context.Background(), l.Until()) // later it has expired anyway
		defer cancel()
		l.watcher.LeaseReleased(l.as, l.release(ctx))
	}()
	return false
}

// relay is a place whose grants are wrapped.
type relay struct {
	inner   distributed.Place
	wrap    func(distributed.Lease) distributed.Lease
	granted chan distributed.Lease // buffered, so that a grant does not wait for its receiver
	leave   sync.Once
	leaving chan struct{} // closed by Leave
	relayed chan struct{} // closed when the goroutine has ended
	ended   bool          // inner has granted, or was lost; may be read after relayed
}

func (r *relay) relay() {
	defer close(r.relayed)
	select {
	case lease, ok := <-r.inner.Granted():
		r.ended = true
		if !ok {
			close(r.granted)
			return
		}
		r.granted <- r.wrap(lease)
		time.AfterFunc(time.Until(lease.Until()), r.expire) // when its claim window has passed, for which others wait
	case <-r.leaving: // a grant that is there as well lies unread in inner, and its Leave releases it
	}
}

// expire releases a grant that nobody has received in time. A receiver that comes later finds the place lost.
func (r *relay) expire() {
	if lease := r.retract(); lease != nil {
		close(r.granted)
		_ = lease.Release(context.Background()) // a lease that cannot be released expires by itself
	}
}

// retract returns the grant if it lies unread, else nil: then it is its receiver's.
func (r *relay) retract() distributed.Lease {
	select {
	case lease := <-r.granted: // nil if the place was lost: its channel is closed
		return lease
	default:
		return nil
	}
}

// Holder implements distributed.Place.
func (r *relay) Holder() string { return r.inner.Holder() }

// Granted implements distributed.Place.
func (r *relay) Granted() <-chan distributed.Lease { return r.granted }

// Leave implements distributed.Place.
func (r *relay) Leave(ctx context.Context) error {
	r.leave.Do(func() { close(r.leaving) })
	<-r.relayed
	if !r.ended {
		return r.inner.Leave(ctx)
	}
	lease := r.retract()
	if lease == nil {
		return nil
	}
	if err := lease.Release(ctx); !errors.Is(err, distributed.ErrLeaseLost) {
		return err
	}
	return nil
}

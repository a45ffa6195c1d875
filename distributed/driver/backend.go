package driver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

// Backend is the distributed.Backend of a Driver, but for Ping. It is safe for concurrent use.
type Backend[W any] struct {
	parts.Observers // of all exchanges, which the Driver reports

	driver  Driver[W]
	renewer Renewer[W] // nil: there are Sessions
	claimer Claimer[W] // nil: grants are claimed in the background, while there is time
	set     Settings
	base    time.Time                  // what the grid of looks is counted from
	last    atomic.Uint64              // the number of the latest attempt
	due     *deadline.Set[*Attempt[W]] // looks without an event
	closed  atomic.Bool                // no more requests
	tasks   parts.Tasks

	mu    sync.Mutex
	lanes map[*Lane[W]]struct{} // guarded by mu; that are not over
}

// New returns the Backend of a Driver. It asks nothing yet.
func New[W any](d Driver[W], set Settings) *Backend[W] {
	b := &Backend[W]{driver: d, set: set, base: time.Now(), lanes: map[*Lane[W]]struct{}{}}
	b.renewer, _ = d.(Renewer[W])
	b.claimer, _ = d.(Claimer[W])
	b.last.Store(uint64(b.base.UnixMicro())) // so that numbers grow even if the name of a process is used again
	b.due = deadline.New(b.lookDue)
	return b
}

// Enter implements distributed.Backend.
func (b *Backend[W]) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if err := parts.Check(b.set.Name, &req, 0); err != nil {
		return nil, nil, err
	}
	if req.QueueMost > 0 && !b.set.Counts {
		return nil, nil, keyless.Errorf("%s: a queue of at most %d instances: %w by this backend", b.set.Name, req.QueueMost, errors.ErrUnsupported)
	}
	before := b.adopt(req) // first: a Drop that is queued need not be sent
	a := b.newAttempt(req)
	a.prev = before
	if b.set.Apart != nil {
		l, p, err := b.enterApart(ctx, a)
		return l, p, b.OrClosed(err)
	}
	defer a.settled()
	for next, again := a, false; ; again = true {
		begun, err := b.begin(ctx, next)
		if err != nil {
			return nil, nil, b.OrClosed(err)
		}
		l, p, err := b.ask(ctx, begun, &a.prev)
		if again || !errors.Is(err, ErrOver) {
			return l, p, b.OrClosed(err)
		}
		next = b.newAttempt(req) // the session has ended while nobody asked, perhaps: the next one is new
	}
}

// enterApart makes a request that goes on when its caller has gone. The attempt's mutex decides between the two: either the caller takes
// the answer, or it has cut the request off, and what that brings is dropped.
func (b *Backend[W]) enterApart(ctx context.Context, a *Attempt[W]) (distributed.Lease, distributed.Place, error) {
	a.overdue = make(chan struct{}, 1)
	err := a.prev.Wait(ctx) // first: Prepare may take what others wait for, and what is left of the time is the request's
	if err == nil {
		_, err = b.begin(ctx, a)
	}
	if err != nil {
		a.settled()
		return nil, nil, err
	}
	var got struct { // of the goroutine that asks, until answered is closed
		l   distributed.Lease
		p   distributed.Place
		err error
	}
	answered, end := make(chan struct{}), errSilent
	ask := func() {
		defer close(answered)
		defer a.settled()
		got.l, got.p, got.err = b.ask(ctx, a, &a.prev)
	}
	if !b.set.Apart(ask) {
		ask() // Close was quicker, and waits for it
	}
	select {
	case <-answered:
		return got.l, got.p, got.err
	case <-ctx.Done():
		end = ctx.Err()
	case <-a.overdue:
	}
	if why, leaves := a.leaves(); leaves {
		return nil, nil, b.unanswered("enter", end, why)
	}
	<-answered // it is there
	return got.l, got.p, got.err
}

// ask makes a request that its lane knows of.
func (b *Backend[W]) ask(ctx context.Context, a *Attempt[W], prev *Prev[W]) (distributed.Lease, distributed.Place, error) {
	defer a.Lane.asked()
	s, err := b.claimed(ctx, a, "enter", b.claimer != nil, func() (Standing, error) { return b.driver.Enter(ctx, a, prev) })
	if err != nil && !errors.Is(err, ErrOver) {
		prev.GiveUp() // first: the service may remember only the latest that has ended
	}
	return a.entered(s, err)
}

// claimed makes a request. A grant with little time left is claimed before its caller gets it (rule C4), or each grant is. One that may
// be of an earlier grant ends the request: a claim would find the later one, and the fences would be those of before.
func (b *Backend[W]) claimed(ctx context.Context, a *Attempt[W], what string, each bool, request func() (Standing, error)) (Standing, error) {
	s, err := request()
	late := err == nil && s.Kind == Granted && a.late(s)
	switch {
	case late && s.Pushed:
		return s, distributed.Unavailable(b.set.Name+": "+what, keyless.Errorf("the answer to a repeated request came late: the lock may have been granted again"))
	case late || each && err == nil && s.Kind == Granted:
		s.claimed = true
		if s.Sent, err = a.renewNow(ctx, a.Window); errors.Is(err, distributed.ErrLeaseLost) {
			err = distributed.Unavailable(b.set.Name+": "+what, keyless.Errorf("the grant is gone: answers take longer than the claim window of %v, or the service has lost it", a.Window))
		}
	}
	return s, err
}

// begin has the lane of a request know of it. One whose session ends before, as one that nobody uses, has sent nothing: it begins again.
// One for a new lease waits before that while held leases are renewed late (rule K6). NoWait does not wait.
func (b *Backend[W]) begin(ctx context.Context, a *Attempt[W]) (*Attempt[W], error) {
	for start := time.Now(); ; a = b.newAttempt(a.Request) {
		err := b.driver.Prepare(ctx, a)
		if err == nil {
			if a.adds && a.Lane.session == nil {
				err = a.Lane.keeper.CatchUp(ctx)
			}
			if err == nil {
				if err = a.Lane.add(a); err == nil {
					return a, nil
				}
			}
			a.quit()
		}
		if !errors.Is(err, ErrOver) || time.Since(start) > a.Window {
			return nil, err
		}
	}
}

// NextNumber returns one that no attempt has.
func (b *Backend[W]) NextNumber() uint64 { return b.last.Add(1) }

// OrClosed returns ErrClosed in place of an error that Close has caused.
func (b *Backend[W]) OrClosed(err error) error {
	if err != nil && b.Closed() {
		return distributed.ErrClosed
	}
	return err
}

// Closed reports that Close was called.
func (b *Backend[W]) Closed() bool { return b.closed.Load() }

// Begin counts a task that Close waits for. The caller calls Done at its end. It reports false when the Backend is closed.
func (b *Backend[W]) Begin() bool { return b.tasks.Begin() }

// Done ends a task that was begun.
func (b *Backend[W]) Done() { b.tasks.Done() }

// Go runs f on a goroutine that Close waits for. It reports false when the Backend is closed, and f is not run.
func (b *Backend[W]) Go(f func()) bool { return b.tasks.Go(f) }

// Close implements distributed.Backend. Places are left and unread grants released. Then the Driver ends its sessions (rule C6).
func (b *Backend[W]) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	for _, ln := range b.allLanes() {
		for _, a := range ln.Attempts() {
			a.close()
		}
		b.Go(ln.keeper.Close)
	}
	b.driver.Close()
	b.tasks.Close()
	b.due.Close()
	return nil
}

// Idle reports that no attempt asks, waits or holds, and that nothing is left to drop or to look at. It is for tests.
func (b *Backend[W]) Idle() bool {
	return b.due.Len() == 0 && !slices.ContainsFunc(b.allLanes(), func(ln *Lane[W]) bool { return !ln.Unused() })
}

// allLanes returns those that are not over. The caller holds no mutex: that of a lane is taken before ours.
func (b *Backend[W]) allLanes() []*Lane[W] {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.lanes))
}

// AttemptOf returns the attempt behind a lease or a place, or nil if it is none of this type. It is for tests of a Driver.
func AttemptOf[W any](x any) *Attempt[W] {
	switch x := x.(type) {
	case place[W]:
		return x.a
	case distributed.Lease:
		if l, ok := distributed.As[*lease[W]](x); ok {
			return l.a
		}
	}
	return nil
}

package wllock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/wllock/wllock/internal/hold"
)

// bundle is a DoAll: its keys in the common order, and the holds of them.
type bundle struct {
	hold.All
	locker *Locker
	keys   []request
	asked  time.Time

	waits  context.Context // for the wait
	inside context.Context // for the function

	localWait, distributedWait time.Duration // of all keys and tries so far
}

// maxRestarts is how often a DoAll starts over because it has lost a key while it waited for others. A backend that loses
// its memory, or has been away for too long, takes a lock from a process that is well once, or twice while it recovers.
// After more than that, no lock lasts for as long as the others take to come.
const maxRestarts = 3

// enter acquires all keys, or none, and returns the bundle that holds them. After an error it returns the fallback of the
// key that the error is about.
func (b *bundle) enter(ctx context.Context) (*bundle, fallback, error) {
	b.asked = time.Now()
	for tries := 0; ; tries++ {
		failed, again, err := b.try(ctx)
		if err == nil {
			return b, nil, nil
		}
		if !again || tries == maxRestarts {
			return nil, failed.options.fallback, err
		}
		b = b.restart()
	}
}

// restart returns a bundle for another try. It is a new one, because a late loss may end the context of the old one.
func (b *bundle) restart() *bundle {
	again := &bundle{locker: b.locker, keys: b.keys, asked: b.asked, localWait: b.localWait, distributedWait: b.distributedWait}
	again.Foreign = b.Foreign
	return again
}

// try acquires all keys, or none, and starts the limits of their holds. After an error, failed is the key that it is
// about; again: that was lost, so another try may succeed.
func (b *bundle) try(ctx context.Context) (failed *request, again bool, err error) {
	b.Init(b.locker.holds, ctx, len(b.keys))
	inside := false
	defer func() {
		if !inside { // also after a panic of the backend's
			b.Release()
		}
	}()
	if failed, err = b.nest(); err != nil {
		return failed, false, err
	}
	failed, err = b.acquire()
	if err == nil || ctx.Err() == nil && errors.Is(err, ErrLeaseLost) {
		if lost := b.Lost(); lost >= 0 { // rule L9: all or none
			return &b.keys[lost], !b.Nested(lost) && ctx.Err() == nil, b.lossOf(lost)
		}
	}
	if err != nil {
		return failed, false, err
	}
	inside = true
	b.begin()
	return nil, false, nil
}

// nest pins the holds of the keys that the context holds already. The others must come after all that it holds.
func (b *bundle) nest() (failed *request, err error) {
	l := b.locker
	for i := range b.keys {
		r := &b.keys[i]
		h, ctx, err := l.within(b.Parent(), r)
		if err != nil {
			return r, err
		}
		if h != nil {
			b.Nest(ctx, i, h, l.releaseWait(r))
		}
	}
	last := l.lastHeld(b.Parent())
	for i := range b.keys {
		if r := &b.keys[i]; !b.Nested(i) && r.key < last { // rule L8
			return r, &Error{Op: "acquire", Key: l.observer.Redaction.Name(r.key), Tier: TierLocal, Err: ErrLockOrder}
		}
	}
	return nil, nil
}

// acquire acquires the keys that are not nested, in order, and stops at the first that fails.
func (b *bundle) acquire() (failed *request, err error) {
	b.makeHolds()
	for i := range b.keys {
		h, r := b.Own(i), &b.keys[i]
		if h == nil {
			continue
		}
		deadline := r.options.deadline(b.asked) // rule L7
		if err := b.locker.acquire(b.waits, h, r, time.Now(), deadline); err != nil {
			return r, b.waited(err)
		}
		b.Entered(i)
		b.localWait += h.LocalWait()
		b.distributedWait += h.DistributedWait()
	}
	return nil, nil
}

// makeHolds makes the holds of the keys that are not nested, each inside the one before, and starts their span, before any
// lock is held (rule T10).
func (b *bundle) makeHolds() {
	holds := make([]own, len(b.keys))
	for i := range b.keys {
		if r := &b.keys[i]; !b.Nested(i) {
			h := holds[i].hold()
			h.Init(b.locker.holds, b.Parent(), &r.name.Name, r.key, r.options.mode)
			b.Add(i, h, b.locker.releaseWait(r))
		}
	}
	b.waits = b.Trace()
}

// waited adds to an error what was waited before, for other keys and in earlier tries, and keeps the sum. Close that ends the context that
// the call waits with has not ended the caller's.
func (b *bundle) waited(err error) error {
	refused, ok := err.(*Error)
	if !ok {
		return err
	}
	e := refused
	e.LocalWait += b.localWait
	e.DistributedWait += b.distributedWait
	e.Waited = e.LocalWait + e.DistributedWait
	b.localWait, b.distributedWait = e.LocalWait, e.DistributedWait
	if b.Stopped() && errors.Is(err, ErrClosed) {
		e.Err = ErrClosed
	}
	return e
}

func (b *bundle) lossOf(key int) error {
	return &Error{Op: "acquire", Key: b.At(key).Shown(), Tier: TierDistributed, Waited: b.localWait + b.distributedWait,
		LocalWait: b.localWait, DistributedWait: b.distributedWait, Err: ErrLeaseLost}
}

// begin is for the moment when all keys are held.
func (b *bundle) begin() {
	if began, ok := b.Began(b.localWait, b.distributedWait); ok {
		for i := range b.keys {
			if h, r := b.Own(i), &b.keys[i]; h != nil && r.options.lockTimeMax > 0 {
				h.LimitBy(began.Add(r.options.lockTimeMax))
			}
		}
	}
	b.inside = b.Inside()
}

// run runs fn and then releases the locks, however fn ends. It returns the function's error, with what was wrong with the first hold
// that was not kept (rule T7).
func (b *bundle) run(fn Func) (err error) {
	returned := false
	defer func() {
		for i := range b.keys {
			if h := b.Own(i); h != nil && b.keys[i].options.onError && (err != nil || !returned) {
				h.CutStay()
			}
		}
		b.Release()
		if h, reasons := b.Reasons(err); h != nil {
			err = explain(h, reasons, err)
		}
	}()
	err = fn(b.inside)
	returned = true
	return err
}

// inOrder sorts by the common order and merges requests for the same key: exclusive, unless all of them are shared.
func inOrder(all []request) []request { // rule L8
	slices.SortFunc(all, func(a, b request) int {
		if order := strings.Compare(a.key, b.key); order != 0 {
			return order
		}
		return int(a.options.mode) - int(b.options.mode) // exclusive first
	})
	return slices.CompactFunc(all, func(a, b request) bool { return a.key == b.key })
}

// lastHeld returns the last key in the common order of the locks of this Locker that ctx carries, or "".
func (l *Locker) lastHeld(ctx context.Context) (last string) {
	for at := hold.Innermost(ctx); at != nil; at = hold.Around(at) {
		if h := at.Hold(); h.Group() == l.holds && h.Open() {
			last = max(last, h.Key())
		}
	}
	return last
}

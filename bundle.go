package wllock

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// bundle is a DoAll: its keys in the common order, and what it has waited for them. The context of each hold descends from
// that of the hold before, so the loss of any of them ends the context of the last, which the function runs with.
type bundle struct {
	locker  *Locker
	members []member
	asked   time.Time
	ctx     context.Context // for the function

	localWait, distributedWait time.Duration // for the keys that were acquired
	foreign                    foreignWait
}

// member is one key of a DoAll.
type member struct {
	request
	hold        *hold // nil: not acquired
	outer       bool  // hold is that of an outer guard
	kept        bool  // until it was released
	releaseWait time.Duration
}

// maxRestarts is how often a DoAll starts over because it has lost a key while it waited for others. A backend that loses
// its memory, or has been away for too long, takes a lock from a process that is well once, or twice while it recovers.
// After more than that, no lock lasts for as long as the others take to come.
const maxRestarts = 3

// enter acquires all keys, or none. After an error it returns the fallback of the key that the error is about.
func (b *bundle) enter(ctx context.Context) (fallback, error) {
	b.asked = time.Now()
	for tries := 0; ; tries++ {
		failed, again, err := b.try(ctx)
		if err == nil {
			return nil, nil
		}
		if !again || tries == maxRestarts {
			return failed.options.fallback, err
		}
	}
}

// try acquires all keys, or none, and starts the limits of their holds. After an error, failed is the key that it is
// about; again: that was lost, so another try may succeed.
func (b *bundle) try(ctx context.Context) (failed *member, again bool, err error) {
	for i := range b.members {
		b.members[i].hold, b.members[i].outer = nil, false
	}
	inside := false
	defer func() {
		if !inside { // also after a panic of the backend's
			b.release()
		}
	}()
	b.ctx = ctx
	if failed, err = b.nest(); err != nil {
		return failed, false, err
	}
	failed, err = b.acquire()
	if err == nil || ctx.Err() == nil && errors.Is(err, ErrLeaseLost) {
		if lost := b.lost(); lost != nil { // rule L9: all or none
			return lost, !lost.outer && ctx.Err() == nil, b.lossOf(lost)
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
func (b *bundle) nest() (failed *member, err error) {
	l := b.locker
	for i := range b.members {
		m := &b.members[i]
		h, ctx, err := within(b.ctx, l.observer, &m.request)
		if err != nil {
			return m, err
		}
		if h != nil {
			m.hold, m.outer, b.ctx = h, true, ctx
		}
	}
	last := l.lastHeld(b.ctx)
	for i := range b.members {
		if m := &b.members[i]; m.hold == nil && m.key < last { // rule L8
			return m, &Error{Op: "acquire", Key: m.key, Tier: TierLocal, Err: ErrLockOrder}
		}
	}
	return nil, nil
}

// acquire acquires the keys that are not nested, in order, and stops at the first that fails.
func (b *bundle) acquire() (failed *member, err error) {
	var span trace.Span
	b.ctx, span = b.locker.observer.beganAll(b.ctx, b.members, &b.foreign) // before any lock is held (rule T10)
	for i := range b.members {
		m := &b.members[i]
		if m.outer {
			continue
		}
		h := b.locker.newHold(&m.request)
		h.parent, h.span = b.ctx, span
		var deadline time.Time
		if m.options.wait > 0 {
			deadline = b.asked.Add(m.options.wait) // rule L7
		}
		if err := b.locker.acquire(b.ctx, h, &m.options, time.Now(), deadline); err != nil {
			return m, b.waited(err)
		}
		m.hold, b.ctx = h, h
		b.localWait += h.localWait
		b.distributedWait += h.distributedWait()
	}
	return nil, nil
}

// waited adds to an error what the keys before have waited.
func (b *bundle) waited(err error) error {
	refused, ok := err.(*Error)
	if !ok {
		return err
	}
	e := *refused // its own, because telemetry reads the other
	e.LocalWait += b.localWait
	e.DistributedWait += b.distributedWait
	e.Waited = e.LocalWait + e.DistributedWait
	return &e
}

// lost returns the first key that has been lost.
func (b *bundle) lost() *member {
	for i := range b.members {
		if m := &b.members[i]; m.hold != nil && m.hold.lost() {
			return m
		}
	}
	return nil
}

func (b *bundle) lossOf(m *member) error {
	return &Error{Op: "acquire", Key: m.key, Tier: TierDistributed, Waited: b.localWait + b.distributedWait,
		LocalWait: b.localWait, DistributedWait: b.distributedWait, Err: ErrLeaseLost}
}

// begin is for the moment when all keys are held.
func (b *bundle) begin() {
	var now time.Time
	for i := range b.members {
		if m := &b.members[i]; !m.outer {
			now = m.hold.use.Began() // the last one's counts
		}
	}
	for i := range b.members {
		m := &b.members[i]
		if m.outer {
			continue
		}
		m.hold.together.Store(b)
		if m.options.lockTimeMax > 0 {
			m.hold.limitTo(now.Add(m.options.lockTimeMax))
		}
	}
}

// run runs fn and then releases the locks, however fn ends.
func (b *bundle) run(fn Func) (err error) {
	defer func() { err = b.leave(err) }()
	return fn(b.ctx)
}

// leave ends the stay. It returns the function's error, with what was wrong with the first hold that was not kept (rule T7).
func (b *bundle) leave(err error) error {
	b.release()
	for i := range b.members {
		if m := &b.members[i]; !m.kept {
			return m.hold.explain(err, m.hold.lossReasons())
		}
	}
	if err == nil {
		return nil
	}
	for i := range b.members {
		if h := b.members[i].hold; h.overstayed.Load() && h.stopped(err) {
			return h.explain(err, []error{ErrLockTimeMax})
		}
	}
	return err
}

// release releases what is held, the last first, and waits for all answers together where that was asked for. Nobody waits
// for telemetry before all turns have been passed on (rule T10).
func (b *bundle) release() {
	var answers *sync.WaitGroup
	passed := false
	for i := len(b.members) - 1; i >= 0; i-- {
		m := &b.members[i]
		switch {
		case m.hold == nil:
		case m.releaseWait > 0:
			if answers == nil {
				answers = new(sync.WaitGroup)
			}
			answers.Go(func() { m.kept = m.hold.unpinWithin(m.releaseWait) })
		default:
			var pass bool
			if m.kept, pass = m.hold.out(); pass {
				m.hold.pass()
				passed = true
			}
		}
	}
	if answers != nil {
		answers.Wait()
	}
	if passed {
		b.locker.observer.left(&b.foreign)
	}
}

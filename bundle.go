package wllock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/internal/heldkey"
	"github.com/wllock/wllock/internal/report"
)

// bundle is a DoAll: its keys in the common order, and the context that its function runs with, which the loss of any of
// them ends. The contexts of its holds are not used: they only lead from each lock to the one before (see link).
type bundle struct {
	holdContext
	locker  *Locker
	members []member
	asked   time.Time

	waits     context.Context      // b, with the span of the acquisition; for the wait
	inside    context.Context      // b, with the span of the hold; for the function
	innermost atomic.Pointer[hold] // the last one, when all are held
	open      atomic.Int32         // the call itself, and its holds; at 0 the context is closed

	localWait, distributedWait time.Duration // of all keys and tries so far
	foreign                    report.Wait
}

// member is one key of a DoAll.
type member struct {
	request
	hold        *hold
	outer       bool // hold is that of an outer guard
	held        bool
	kept        bool // until it was released
	releaseWait time.Duration
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
	members := slices.Clone(b.members)
	for i := range members {
		m := &members[i]
		m.hold, m.outer, m.held = nil, false, false
	}
	return &bundle{locker: b.locker, members: members, asked: b.asked, localWait: b.localWait, distributedWait: b.distributedWait, foreign: b.foreign}
}

// try acquires all keys, or none, and starts the limits of their holds. After an error, failed is the key that it is
// about; again: that was lost, so another try may succeed.
func (b *bundle) try(ctx context.Context) (failed *member, again bool, err error) {
	b.open.Store(1)
	inside := false
	defer func() {
		if !inside { // also after a panic of the backend's
			b.release()
		}
	}()
	b.parent = ctx
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
		h, ctx, err := within(b.parent, l.observer, &m.request)
		if err != nil {
			return m, err
		}
		if h != nil {
			m.hold, m.outer, m.held, b.parent = h, true, true, ctx
		}
	}
	last := l.lastHeld(b.parent)
	for i := range b.members {
		if m := &b.members[i]; !m.outer && m.key < last { // rule L8
			return m, &Error{Op: "acquire", Key: l.observer.Redaction.Name(m.key), Tier: TierLocal, Err: ErrLockOrder}
		}
	}
	return nil, nil
}

// acquire acquires the keys that are not nested, in order, and stops at the first that fails.
func (b *bundle) acquire() (failed *member, err error) {
	b.makeHolds()
	for i := range b.members {
		m := &b.members[i]
		if m.outer {
			continue
		}
		deadline := m.options.deadline(b.asked) // rule L7
		if err := b.locker.acquire(b.waits, m.hold, &m.options, time.Now(), deadline); err != nil {
			return m, b.waited(err)
		}
		m.held = true
		b.open.Add(1)
		b.localWait += m.hold.localWait
		b.distributedWait += m.hold.distributedWait()
	}
	return nil, nil
}

// makeHolds makes the holds of the keys that are not nested, each inside the one before, and starts their span, before any
// lock is held (rule T10).
func (b *bundle) makeHolds() {
	var spans *report.Spans
	b.waits, spans = b.traced()
	holds, before := make([]hold, len(b.members)), b.parent
	for i := range b.members {
		m := &b.members[i]
		if m.outer {
			continue
		}
		m.hold = &holds[i]
		m.hold.init(b.locker, &m.request)
		m.hold.together, m.hold.parent, m.hold.spans = b, before, spans
		before = m.hold
	}
}

// traced starts the span of the acquisition of the keys that are not nested, and returns the context to wait with.
func (b *bundle) traced() (context.Context, *report.Spans) {
	if !b.locker.observer.Traces() {
		return b, nil
	}
	var names, keys []string
	for i := range b.members {
		if m := &b.members[i]; !m.outer {
			names, keys = append(names, m.name.Text), append(keys, m.key)
		}
	}
	if keys == nil {
		return b, nil
	}
	return b.locker.observer.BeganAll(b, slices.Compact(names), keys, &b.foreign)
}

// waited adds to an error what was waited before, for other keys and in earlier tries, and keeps the sum. Close that ends the context that
// the call waits with has not ended the caller's.
func (b *bundle) waited(err error) error {
	refused, ok := err.(*Error)
	if !ok {
		return err
	}
	e := *refused // its own, because telemetry reads the other
	e.LocalWait += b.localWait
	e.DistributedWait += b.distributedWait
	e.Waited = e.LocalWait + e.DistributedWait
	b.localWait, b.distributedWait = e.LocalWait, e.DistributedWait
	if b.endedByHold() != nil && errors.Is(err, ErrClosed) {
		e.Err = ErrClosed
	}
	return &e
}

// lost returns the first key that has been lost.
func (b *bundle) lost() *member {
	for i := range b.members {
		if m := &b.members[i]; m.held && m.hold.lost() {
			return m
		}
	}
	return nil
}

func (b *bundle) lossOf(m *member) error {
	return &Error{Op: "acquire", Key: m.hold.shown(), Tier: TierDistributed, Waited: b.localWait + b.distributedWait,
		LocalWait: b.localWait, DistributedWait: b.distributedWait, Err: ErrLeaseLost}
}

// begin is for the moment when all keys are held.
func (b *bundle) begin() {
	last := b.members[len(b.members)-1]
	if last.outer {
		return // then all are: an outer key comes before the others
	}
	b.innermost.Store(last.hold)
	if b.locker.observer.Traces() {
		b.locker.observer.GotAll(last.hold.report(), b.localWait, b.distributedWait)
	}
	for i := range b.members {
		if m := &b.members[i]; !m.outer && m.options.lockTimeMax > 0 {
			m.hold.limitBy(last.hold.use.Began().Add(m.options.lockTimeMax))
		}
	}
	b.inside = last.hold.inside(b, &b.foreign)
}

// run runs fn and then releases the locks, however fn ends.
func (b *bundle) run(fn Func) (err error) {
	defer func() { err = b.leave(err) }()
	if b.innermost.Load() == nil { // all keys are nested
		return fn(b.parent)
	}
	return fn(b.inside)
}

// Value implements context.Context.
func (b *bundle) Value(key any) any {
	if key == heldkey.Key {
		if h := b.innermost.Load(); h != nil {
			return h
		}
	}
	return b.value(key)
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

// closeOne is called when the call has ended, and when one of its holds has, which nested guards may keep for longer.
func (b *bundle) closeOne() {
	if b.open.Add(-1) == 0 {
		b.close()
	}
}

// release releases what is held, the last first, and waits for all answers together where that was asked for. Nobody waits
// for telemetry before all turns have been passed on (rule T10).
func (b *bundle) release() {
	var answers *sync.WaitGroup
	passed := false
	for i := len(b.members) - 1; i >= 0; i-- {
		m := &b.members[i]
		switch {
		case !m.held:
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
	b.closeOne()
	if answers != nil {
		answers.Wait()
	}
	if passed {
		b.locker.observer.Left(&b.foreign)
	}
}

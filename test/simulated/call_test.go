package simulated

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/test/history"
)

// call is what one caller does. All is drawn from a source of its own.
type call struct {
	*process
	n        int
	rnd      *rand.Rand
	keys     []string
	shared   bool
	permits  int
	noWait   bool
	detaches bool // and another process adopts the lock
	sync     bool // SyncRelease
	stays    bool // WithHoldAtLeast
	deaf     bool // its function does not look at its context
	stay     time.Duration
	opts     []wllock.CallOption
	noted    []*history.Call // one for each key, and perhaps one for the line of the process
	looked   error           // what the function has found when it left
	ran      bool
}

func (c *call) String() string { return fmt.Sprintf("call %d of %s for %v", c.n, c.name, c.keys) }

func (c *call) isShared() bool { return c.shared || c.permits > 0 }

func (c *call) has(keys []string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return slices.Contains(c.keys, k) })
}

func (c *call) oneIn(n int) bool { return c.rnd.IntN(n) == 0 }

// draw draws what the caller wants. permitsKey is for permits and few others.
func (c *call) draw() {
	switch c.rnd.IntN(8) {
	case 0, 1:
		c.keys = []string{permitsKey}
		if !c.oneIn(6) {
			c.permits = 2
			c.opts = append(c.opts, wllock.Permits(2))
		}
	case 2:
		c.keys = []string{"a", "b"}
	case 3, 4:
		c.keys = []string{"b"}
	default:
		c.keys = []string{"a"}
	}
	if c.permits == 0 && c.oneIn(3) {
		c.shared = true
		c.opts = append(c.opts, wllock.Shared())
	}
	switch exclusive := !c.isShared() && len(c.keys) == 1; {
	case exclusive && c.oneIn(12):
		c.stays = true
		c.opts = append(c.opts, wllock.WithHoldAtLeast(c.below(leaseTTL/8)))
	case exclusive && c.oneIn(8):
		c.detaches = true
	}
	if c.oneIn(6) {
		c.noWait = true
		c.opts = append(c.opts, wllock.NoWait())
	} else if c.oneIn(12) {
		c.opts = append(c.opts, wllock.WithCallThreshold(1))
	}
	if c.oneIn(8) {
		c.sync = true
		c.opts = append(c.opts, wllock.SyncRelease())
	}
	if c.oneIn(16) {
		c.opts = append(c.opts, wllock.WithLockTimeMax(c.below(leaseTTL/4)))
	}
	switch c.rnd.IntN(10) {
	case 0:
		c.stay = c.below(2 * leaseTTL)
	case 1, 2:
		c.stay = c.below(leaseTTL / 3)
	default:
		c.stay = c.below(leaseTTL / 40)
	}
	c.deaf = c.oneIn(16)
}

// context draws for how long the caller waits, and says when it must have an answer.
func (c *call) context() (ctx context.Context, cancel context.CancelFunc, deadline time.Time) {
	patience := c.below(4 * leaseTTL)
	deadline = time.Now().Add(patience)
	switch c.rnd.IntN(4) {
	case 0:
		if !c.noWait {
			c.opts = append(c.opts, wllock.WithWait(patience))
			return context.Background(), func() {}, deadline
		}
		fallthrough
	case 1:
		ctx, cancel = context.WithDeadline(context.Background(), deadline)
		return ctx, cancel, deadline
	}
	ctx, cancel = context.WithCancel(context.Background())
	time.AfterFunc(patience, cancel)
	return ctx, cancel, deadline.Add(distributed.HeartbeatInterval(leaseTTL))
}

// run makes the call, and checks its answer.
func (c *call) run() {
	c.wake()
	if c.isDead() {
		return
	}
	c.draw()
	ctx, cancel, deadline := c.context()
	defer cancel()
	if c.sync && len(c.keys) > 1 {
		deadline = deadline.Add(leaseTTL) // it waits for the releases of the keys that it has
	}
	c.asks(deadline)
	var err error
	switch {
	case c.detaches:
		err = c.detach(ctx)
	case len(c.keys) > 1:
		var all []wllock.Resource
		for _, k := range c.keys {
			all = append(all, wllock.Resource{Name: "n", Key: k})
		}
		err = c.locker.DoAll(ctx, all, c.inside, c.opts...)
	default:
		err = c.locker.Do(ctx, "n", c.keys[0], c.inside, c.opts...)
	}
	c.wake()
	if c.isDead() {
		return
	}
	c.back(err)
	c.answered(err)
	if c.oneIn(4) {
		c.process.look()
	}
}

// back notes that the call has returned.
func (c *call) back(err error) {
	e := history.Event{What: history.Back}
	if err != nil {
		e.Error = err.Error()
	}
	c.note(c.noted, e)
}

// asks notes that the call is about to be made.
func (c *call) asks(deadline time.Time) {
	now := time.Now().UnixNano()
	for _, key := range c.keys {
		c.noted = append(c.noted, &history.Call{Process: c.name, Asked: now, Request: history.Request{
			Caller: fmt.Sprint(c.n), Key: key, Shared: c.shared, Permits: c.permits, NoWait: c.noWait, Deadline: deadline.UnixNano(),
		}})
	}
	if first := *c.noted[0]; c.w.calm && len(c.keys) == 1 && c.keys[0] != permitsKey && !c.noWait {
		first.Key = "line of " + c.name + " for " + first.Key
		first.Queued = now + 1 // it stands in line as soon as no other goroutine runs
		c.noted = append(c.noted, &first)
	}
	c.w.with(func() { c.w.history.Calls = append(c.w.history.Calls, c.noted...) })
}

// inside is the function under the lock.
func (c *call) inside(ctx context.Context) error {
	h, _ := wllock.HeldFrom(ctx)
	if h.Degraded() { // also while it stands still, for timers fire
		c.degraded(c)
	}
	c.wake()
	if c.ran = true; c.isDead() {
		return nil
	}
	c.entered(c, h)
	c.holds(ctx, h)
	c.process.left(c)
	return nil
}

// holds is what the caller does with a lock that it holds.
func (c *call) holds(ctx context.Context, h *wllock.Held) {
	c.looks(history.Held, ctx)
	if c.oneIn(8) {
		c.process.look()
	}
	begun := h.Degraded()
	if write := c.reads(h); write != nil {
		defer c.looks(history.Leave, ctx)
		c.rests(ctx)
		write()
	} else {
		c.rests(ctx)
		c.looks(history.Leave, ctx)
	}
	if c.looked = h.Err(); h.Degraded() && !begun {
		c.w.seen.note("state: became degraded")
	}
}

// rests stays inside.
func (c *call) rests(ctx context.Context) {
	if c.deaf {
		time.Sleep(c.stay)
	} else {
		pause(ctx, c.stay)
	}
	c.wake()
}

// looks notes whether the caller believes in its leases.
func (c *call) looks(what history.What, ctx context.Context) {
	for i, n := range c.noted {
		h, _ := wllock.HeldFrom(ctx)
		if i < len(c.keys) && len(c.keys) > 1 {
			h, _ = wllock.HeldKey(ctx, "n", c.keys[i])
		}
		e := history.Event{What: what, Fence: h.Fence()}
		if until := h.Until(); h.Err() == nil && !h.Degraded() {
			e.Until = until.UnixNano()
		}
		c.note([]*history.Call{n}, e)
	}
}

// reads reads the number of the key, and returns what writes the next. nil: there is none to read, or the store knows a later fence.
func (c *call) reads(h *wllock.Held) (write func()) {
	if len(c.keys) > 1 || c.permits > 0 || h.Fence() == 0 {
		return nil
	}
	fence, noted := h.Fence(), c.noted[:1]
	if c.shared {
		fence = 0
	}
	c.note(noted, history.Event{What: history.Read})
	was, ok := c.w.data.read(c.keys[0], fence)
	if !ok {
		c.note(noted, history.Event{What: history.Refused})
		return nil
	}
	c.note(noted, history.Event{What: history.Got, Was: was})
	if c.shared {
		return nil
	}
	return func() {
		if c.isDead() {
			return
		}
		c.note(noted, history.Event{What: history.Write, Was: was, New: was + 1})
		if c.w.data.write(c.keys[0], fence, was+1) {
			c.note(noted, history.Event{What: history.Wrote})
		} else {
			c.note(noted, history.Event{What: history.Refused})
			c.w.seen.note("state: a late writer was refused")
		}
	}
}

// detach acquires the lock, detaches it, and has another process adopt it.
func (c *call) detach(ctx context.Context) error {
	l, err := c.locker.Acquire(ctx, "n", c.keys[0], c.opts...)
	if err != nil {
		return err
	}
	c.wake()
	if c.isDead() {
		return nil
	}
	inside := l.Context()
	c.looks(history.Held, inside)
	c.looks(history.Leave, inside)
	token, err := l.Detach(context.Background(), leaseTTL)
	if err != nil {
		_ = l.Release(context.Background())
		return err
	}
	c.w.seen.note("state: detached")
	time.Sleep(c.below(leaseTTL / 8))
	by := c.w.procs[c.rnd.IntN(len(c.w.procs))]
	if by.wake(); by.isDead() {
		return nil
	}
	c.w.adopt(by, c, token)
	return nil
}

// adopt has a process adopt a detached lock, or release it.
func (w *world) adopt(by *process, c *call, token wllock.Token) {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTTL)
	defer cancel()
	if c.oneIn(3) {
		by.result("release of a token", by.locker.ReleaseToken(ctx, token))
		return
	}
	a := &call{process: by, n: c.n, rnd: c.rnd, keys: c.keys, stay: c.stay}
	deadline := time.Now().Add(leaseTTL)
	if w.memory == nil {
		deadline = deadline.Add(leaseTTL) // an Adopt over register waits for the Store, though its context has ended
	}
	a.asks(deadline)
	a.noted = a.noted[:1] // it stands in no line
	l, err := by.locker.Adopt(ctx, token)
	by.wake()
	by.result("adopt", err)
	if err == nil {
		a.holds(l.Context(), &l.Held)
		_ = l.Release(context.Background())
	}
	a.back(err)
}

// result notes how a call has ended.
func (p *process) result(what string, err error) {
	found := false
	for name, is := range map[string]error{
		"queue full": wllock.ErrQueueFull, "wait timeout": wllock.ErrWaitTimeout, "held": wllock.ErrHeld, "lease lost": wllock.ErrLeaseLost,
		"lock time max": wllock.ErrLockTimeMax, "unavailable": wllock.ErrUnavailable, "closed": wllock.ErrClosed, "canceled": context.Canceled,
	} {
		if errors.Is(err, is) {
			found = true
			p.seen.note(what + ": " + name)
		}
	}
	switch {
	case err == nil:
		p.seen.note(what + ": ok")
	case !found && !errors.Is(err, context.DeadlineExceeded):
		p.w.fail("%s of %s: unexpected: %v", what, p.name, err)
	}
}

// answered checks what the call has returned.
func (c *call) answered(err error) {
	c.result("call", err)
	c.caused(c, err)
	if err == nil && !c.ran && !c.detaches {
		c.w.fail("%v returned nil, and its function has not run", c)
	}
	if err == nil && errors.Is(c.looked, wllock.ErrLeaseLost) { // rule T7
		c.w.fail("%v returned nil, and its function knew that its lease was lost", c)
	}
	if c.noWait && c.w.calm && errors.Is(err, context.DeadlineExceeded) && c.ran {
		c.w.fail("%v did not wait, and timed out", c)
	}
}

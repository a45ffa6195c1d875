package simulated

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/test/history"
)

// process is one Locker with its way to the service.
type process struct {
	*network
	name   string
	w      *world
	view   distributed.Backend
	locker *wllock.Locker

	inside struct {
		mu  sync.Mutex
		all map[*call]*wllock.Held // those whose function runs; guarded by mu
	}
}

// newProcess opens a process. What differs from process to process is drawn.
func (w *world) newProcess(i int) *process {
	p := &process{network: newNetwork(w.seed, uint64(i), w.seen), name: fmt.Sprint("p", i), w: w}
	p.flaw = w.flaw
	p.inside.all = map[*call]*wllock.Held{}
	p.bad = !w.calm
	var opts []wllock.Option
	if w.memory != nil {
		p.view = &memoryView{Backend: w.memory, network: p.network}
	} else {
		p.view = newDocumentsView(w.documents, p.network)
		opts = append(opts, wllock.WithOwnedBackend())
	}
	opts = append(opts, wllock.WithLeaseTTL(leaseTTL), wllock.WithMaxHandoffs(w.rnd.IntN(6)), wllock.WithMaxTenure(p.below(leaseTTL/4)),
		wllock.WithInstance(p.name))
	if w.local {
		opts = append(opts, wllock.WithOutage(wllock.LocalOnly))
	}
	switch w.rnd.IntN(3) {
	case 0:
		opts = append(opts, wllock.WithLinger(0))
	case 1:
		opts = append(opts, wllock.WithLinger(p.below(leaseTTL/4)))
	}
	backend := p.view
	if w.calm {
		backend = noted{p.view.(distributed.Observable), p}
	}
	l, err := wllock.New("sim", backend, opts...)
	if err != nil {
		panic(err)
	}
	p.locker = l
	return p
}

// fullName is that of a key at the service.
func fullName(key string) string { return "sim:n:" + key }

// standStill has the process send, receive and run nothing for a while. If that is long its leases expire.
func (p *process) standStill(d time.Duration) {
	since := time.Now()
	p.with(func() {
		p.still, p.trouble = since.Add(d), since.Add(d)
		if p.failing.IsZero() {
			p.failing = since
		}
	})
	p.w.seen.note("fault: a process stands still")
	p.unrenewed(d)
	p.w.fault(history.Fault{Name: history.Stop, On: p.name, Since: since.UnixNano()}, since.Add(d))
}

// cutOff has nothing of the process arrive for a while.
func (p *process) cutOff(d time.Duration) {
	p.with(func() {
		p.cut = time.Now().Add(d)
		p.trouble = p.cut
	})
	p.w.seen.note("fault: a process is cut off")
	p.unrenewed(d)
}

// unrenewed has the leases of the process expire, if it cannot renew them for that long.
func (p *process) unrenewed(d time.Duration) {
	if v, ok := p.view.(*memoryView); ok && d > distributed.RenewInterval(leaseTTL) {
		v.loseRenewals()
	}
}

// die cuts the process off for ever. It says nothing any more.
func (p *process) die() {
	now := time.Now()
	p.w.with(func() {
		p.with(func() { p.dead = true })
		p.w.history.Ends[p.name] = now.UnixNano()
	})
	p.w.seen.note("fault: a process dies")
	p.unrenewed(leaseTTL)
	p.w.fault(history.Fault{Name: history.Kill, On: p.name, Since: now.UnixNano()}, now)
}

// note adds an event to what is known of calls, unless the process is dead.
func (p *process) note(calls []*history.Call, e history.Event) {
	p.w.with(func() {
		if p.isDead() {
			return
		}
		e.At = time.Now().UnixNano()
		for _, c := range calls {
			if err := c.Note(e); err != nil {
				p.w.fails("%v", err)
			}
		}
	})
}

// entered checks that no caller of the process that excludes this one is inside, leased or degraded.
func (p *process) entered(c *call, h *wllock.Held) {
	p.inside.mu.Lock()
	defer p.inside.mu.Unlock()
	for o, held := range p.inside.all {
		excludes := !(o.isShared() && c.isShared()) && o.has(c.keys)
		if excludes && h.Err() == nil && held.Err() == nil {
			p.w.fail("%v is inside beside %v of the same process: degraded %t and %t", c, o, h.Degraded(), held.Degraded())
		}
	}
	p.inside.all[c] = h
}

func (p *process) left(c *call) {
	p.inside.mu.Lock()
	defer p.inside.mu.Unlock()
	delete(p.inside.all, c)
}

// degraded checks a caller that was let in without a lease: rule O4.
func (p *process) degraded(c *call) {
	var failing time.Time
	p.with(func() { failing = p.failing })
	p.w.seen.note("state: degraded")
	switch {
	case !p.w.local:
		p.w.fail("%v is degraded, though the policy is FailClosed", c)
	case len(c.keys) > 1: // perhaps it has waited for the last key
	case failing.IsZero():
		p.w.fail("%v was let in without a lease, though the service answers", c)
	case time.Since(failing) < leaseTTL:
		p.w.fail("%v was let in without a lease, %v after the first silence", c, time.Since(failing))
	}
}

// memory of trouble: how long a failure may explain what becomes of callers.
const remembered = 3 * leaseTTL

// caused checks that an error of a caller has its reason in the weather.
func (p *process) caused(c *call, err error) {
	if !errors.Is(err, wllock.ErrUnavailable) && !errors.Is(err, wllock.ErrLeaseLost) {
		return
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded): // the answer to this caller was on its way
		return
	case errors.Is(err, wllock.ErrLockTimeMax): // its function was deaf, so the lease was abandoned
		return
	}
	var trouble time.Time
	p.with(func() { trouble = p.trouble })
	if p.w.calm || time.Since(trouble) > remembered && !c.detaches {
		p.w.fail("%v got %v, though the service has answered its process", c, err)
	}
}

// look notes what state the process's locks are in.
func (p *process) look() {
	for _, i := range p.locker.Locks(10) {
		for state, is := range map[string]bool{
			"held": i.Holders > 0, "read by several": i.Holders > 1 && i.Mode == "shared", "several permits": i.Holders > 1 && i.Permits > 0,
			"a line": i.Waiting > 0, "a place": i.AtBackend, "lingering": i.Lingering, "staying": i.Staying,
			"releasing": i.Holders == 0 && !i.AtBackend && !i.Lingering && i.Waiting == 0 && i.Until.IsZero(), "handed on": i.Turns > 1,
		} {
			if is {
				p.w.seen.note("state: " + state)
			}
		}
	}
}

// counted notes what the process has counted in its life.
func (p *process) counted() {
	s := p.locker.Stats().Total
	for state, n := range map[string]uint64{"lost": s.Lost, "overstayed": s.Overstays, "ended degraded": s.Degraded, "in a batch": s.Batched} {
		if n > 0 {
			p.w.seen.note("state: " + state)
		}
	}
}

package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/identity"
	"github.com/wllock/wllock/internal/keyless"
)

// attempt is one Enter and what came of it: see package driver.
type attempt = driver.Attempt[claim]

// claim is what we keep of an attempt.
type claim struct {
	wireAttempt
	id     identity.Attempt
	node   *node
	after  atomic.Uint64 // a fence of its key that is known to be reserved, so that every later one is larger; 0: none
	last   atomic.Uint64 // the last fence that was reserved for its lease
	polls  atomic.Int32  // of a foreigner's key, without interruption
	change atomic.Uint32 // of an exclusive lease to a shared one; goes up
	sole   atomic.Bool   // no copy of its enter can come late, nor of one whose lease it has overwritten without a note. It was not dropped yet
	tried  atomic.Bool   // its enter was sent more than once: it may have had a place, been granted the lock, and have a place again
	parted atomic.Bool   // its release may have been carried out, of which nothing is noted
}

// half is the Backend as its client half sees it.
type half struct{ *Backend }

var _ driver.Renewer[claim] = half{}

const (
	// maxWorkers bounds the requests under way with one node that release in the background: one pipeline is not enough, for while it
	// waits for its replies the next should be sent.
	maxWorkers = 4
	// gridOfLooks lets places that wait share their heartbeats: each is sent H/32 earlier at most.
	gridOfLooks = 32
	// dropsHere is no bound: releases that are waited for share exchanges by themselves (rule R13).
	dropsHere = 1 << 30
)

var clientSettings = driver.Settings{
	Name: "redislock", LookMost: conn.MaxBatch, Grid: gridOfLooks, DropMost: conn.MaxBatch, Drops: maxWorkers, DropsHere: dropsHere, Tells: true, Counts: true, Twice: true, Pause: pauseAfter,
}

// pauseAfter is how long to wait after so many tries.
func pauseAfter(tries int) time.Duration {
	return jittered(min(firstPause<<min(tries-1, 10), longestPause))
}

// Prepare implements driver.Driver. It makes sure that the server was probed.
func (d half) Prepare(ctx context.Context, a *attempt) error {
	if err := check(a.Request); err != nil {
		return err
	}
	d.sub.pace.Note(a.TTL)
	if !d.isProven(a.Key) {
		if err := d.prove(ctx, max(a.TTL*3/2, firstBudget), a.Key); err != nil {
			return err
		}
	}
	if err := d.fastEnough(ctx, a.Key, a.TTL); err != nil {
		return err
	}
	a.Window = d.s.network().claimWindow(a.TTL)
	d.identify(a, d.s.process, identity.NewAttempt(a.Number), instanceName(a.Instance))
	return nil
}

// identify names an attempt of a process as its requests do.
func (b *Backend) identify(a *attempt, process string, id identity.Attempt, instance string) {
	n := b.nodes.of(a.Key)
	w := &a.Wire
	a.Lane, w.node, w.id = n.lane, n, id
	w.init(&b.s.sender, process, id, a.Key, instance, a.Mode, a.TTL, a.Window)
	switch {
	case a.NoWait:
		w.queueMost(0)
	case a.QueueMost > 0:
		w.queueMost(a.QueueMost)
	}
	if a.Limit > 0 {
		w.limited(a.Limit)
	}
}

// Enter implements driver.Driver.
func (d half) Enter(ctx context.Context, a *attempt, prev *driver.Prev[claim]) (driver.Standing, error) {
	if p := prev.Attempt(); p != nil {
		a.Wire.after.Store(p.Wire.last.Load())
	}
	begin := time.Now()
	mine := prev.Mine()
	parted := mine != nil && mine.Wire.parted.Load()
	c := a.Wire.enter(asPrev(mine), parted)
	sent, err := d.s.ask(ctx, c, a.TTL, a.Window)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, distributed.ErrUnreached) && !errors.Is(err, distributed.ErrRefused) {
			d.doubted.Store(true)
		}
		return driver.Standing{}, err
	}
	r := readStanding(c.Reply, sent)
	switch r.kind {
	case hasLease, hasPlace, heldByOther:
	case outdated: // somebody uses our instance and process id; the attempt's number cannot have gone back
		return driver.Standing{}, conn.Unavailable("enter", conn.Refusal(keyless.Errorf("the server knows a later attempt")))
	default:
		return driver.Standing{}, conn.Unavailable("enter", conn.Refusal(fmt.Errorf("the server answers %q", r.kind)))
	}
	a.Wire.tried.Store(c.Tries > 1)
	a.Wire.sole.Store(c.Tries == 1 && (mine == nil || parted || mine.Wire.sole.Load()))
	stands := d.stands(a, r, sent) // before prev is dropped: what drops it tells the server the latest fence
	stands.Pushed = c.Tries > 1
	// An earlier try may have released prev, been granted the lock, and have expired since: the server remembers that prev has ended only
	// while the lock names the later attempt.
	repeatedLate := c.Tries > 1 && sent.Sub(begin) > a.Window/2
	switch {
	case parted:
		prev.GiveUp() // its release has been answered, or tells what became of it
	case r.prevLost && !repeatedLate:
		prev.Settle(driver.Lost)
	default:
		prev.Settle(driver.Removed)
	}
	return stands, nil
}

// asPrev names the lease that enter is to release first. Nil is none.
func asPrev(a *attempt) any {
	if a == nil {
		return noPrev
	}
	return a.Wire.prev(a.Mode, a.Fences.First)
}

// stands is what a reply says to a request that was sent then.
func (b *Backend) stands(a *attempt, r standing, sent time.Time) driver.Standing {
	switch r.kind {
	case hasLease:
		return b.granted(a, r.grant)
	case hasPlace:
		return driver.Standing{Kind: driver.Queued, Sent: sent, Holder: r.position.holder, Next: a.Wire.next(a.TTL, r.position, sent)}
	default:
		return driver.Standing{Kind: driver.Refused, Holder: r.holder}
	}
}

// granted is a grant, or a further block of one. Renewals and messages tell what becomes of it. Foreigners poll, and cannot say that they want it (rules R12 and T12).
func (b *Backend) granted(a *attempt, g grant) driver.Standing {
	last := g.fence + g.count - 1
	a.Wire.space.see(last)
	for old := a.Wire.last.Load(); old < last && !a.Wire.last.CompareAndSwap(old, last); old = a.Wire.last.Load() {
	}
	return driver.Standing{
		Kind: driver.Granted, Sent: g.since, Fences: driver.Block{First: g.fence, Count: g.count}, Contended: g.contended, Next: driver.Never,
		Wanted: b.s.gap > 0,
	}
}

// Drop implements driver.Driver.
func (d half) Drop(ctx context.Context, some []*attempt) {
	calls := make([]*conn.Call, len(some))
	shortest := some[0].TTL
	for i, a := range some {
		calls[i] = partingOf(a)
		shortest = min(shortest, a.TTL)
	}
	if ctx == d.s.ctx { // in the background: Close waits for it
		ctx = context.Background()
	}
	d.s.try(ctx, shortest, calls...)
	var again []*attempt
	for i, a := range some {
		switch c := calls[i]; {
		case c.Err == nil && c.Reply == otherReply:
			a.Wire.parted.Store(false)
			again = append(again, a)
		case c.Err == nil:
			a.Dropped(readLeave(c.Reply, a.Wire.parted.Load()))
		case conn.Classify(c.Err) == conn.Permanent:
			a.DropRefused(conn.Unavailable("release", c.Err))
		default:
			a.Unanswered(c.Err)
		}
	}
	if len(again) > 0 {
		d.Drop(ctx, again)
	}
}

// partingOf is what drops an attempt: at first, a release of a lease that nobody is known to wait for.
func partingOf(a *attempt) *conn.Call {
	w, l := &a.Wire, a.Lease()
	if w.sole.Swap(false) && l != nil && !l.Contended() && modeOf(a) == distributed.Exclusive && w.fixed.exclusive == modeExclusive {
		w.parted.Store(true)
		return w.release(a.Fences.First)
	}
	return w.leave()
}

// Refill implements driver.Driver.
func (d half) Refill(ctx context.Context, a *attempt) (driver.Block, error) {
	s, err := d.reserve(ctx, a, a.Wire.refill())
	if err == nil {
		a.Stands(s)
	}
	return s.Fences, err
}

// reserve asks for fences of a lease that is held.
func (b *Backend) reserve(ctx context.Context, a *attempt, c *conn.Call) (driver.Standing, error) {
	sent, err := b.s.ask(ctx, c, a.TTL, time.Until(a.Lease().Until()))
	if err != nil {
		return driver.Standing{}, err
	}
	r := readRefill(c.Reply)
	if !r.held {
		a.Gone()
		return driver.Standing{}, distributed.ErrLeaseLost
	}
	r.grant.since = sent
	return b.granted(a, r.grant), nil
}

// The states of claim.change.
const (
	asGranted uint32 = iota
	changing         // it may be a shared lease by now
	changed          // it is one
)

// modeOf is Shared if the lease may be a shared one.
func modeOf(a *attempt) distributed.Mode {
	if a.Wire.change.Load() != asGranted {
		return distributed.Shared
	}
	return a.Mode
}

// Share implements driver.Driver.
func (d half) Share(ctx context.Context, a *attempt) (driver.Standing, error) {
	a.Wire.change.CompareAndSwap(asGranted, changing) // before it is sent: whatever becomes of it, renewals reckon with it
	s, err := d.reserve(ctx, a, a.Wire.downgrade())
	if err == nil {
		a.Wire.change.Store(changed)
		a.Renewed(s.Sent, s.Contended)
	}
	return s, err
}

// Ended implements driver.Driver.
func (half) Ended(*attempt) {}

// Close implements driver.Driver.
func (d half) Close() {
	d.cancel() // no Enter asks again, so they all end
	d.nodes.close()
}

// ClaimTime implements driver.Renewer (rule R5).
func (d half) ClaimTime(a *attempt) time.Duration { return d.s.network().claimTime(a.TTL) }

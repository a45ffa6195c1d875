package redlock

import (
	"context"
	"fmt"
	"math/bits"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/parts"
)

// half is the Backend as its client half sees it.
type half struct{ *Backend }

var _ driver.Renewer[claim] = half{}

// many is no bound: releases share exchanges by themselves, in the lanes of each server.
const many = 1 << 30

// clientSettings: a Drop may be under way beside an Enter with the same prev, for on each server one of the two finds the vote.
var clientSettings = driver.Settings{
	Name: "redlock", LookMost: conn.MaxBatch, DropMost: conn.MaxBatch, Drops: many, DropsHere: many, Twice: true, Pause: pauseAfter,
}

// pauseAfter is how long to wait after so many tries.
func pauseAfter(tries int) time.Duration {
	return jittered(doubled(firstBackoff, tries-1, longestBackoff))
}

// Prepare implements driver.Driver.
func (d half) Prepare(_ context.Context, a *attempt) error {
	if err := checkKey(a.Key); err != nil {
		return err
	}
	if err := a.Unlimited(); err != nil {
		return fmt.Errorf("redlock: %w", err)
	}
	if err := parts.Check("redlock", &a.Request, maxTTL); err != nil {
		return err
	}
	if err := d.twinned(); err != nil {
		return d.unavailable("enter", err)
	}
	d.pace.Note(a.TTL)
	one := newBid(d.Backend, a.Request)
	one.a, a.Lane = a, d.lane
	a.Wire.bid.Store(one)
	d.bids.Store(one.token, one) // before it is sent: notices can come before the reply
	d.listen()
	return nil
}

// Enter implements driver.Driver. What a server says of prev decides with its other answers what became of that: see parting.
func (d half) Enter(ctx context.Context, a *attempt, prev *driver.Prev[claim]) (driver.Standing, error) {
	one, before := a.Wire.bid.Load(), (*bid)(nil)
	if p := prev.Mine(); p != nil {
		before = p.Wire.bid.Load()
	}
	one.enter(before)
	return one.await(ctx)
}

// Look implements driver.Driver. It does not wait for the answers, which plan the next look. Without any that comes after H.
func (half) Look(_ context.Context, some []*attempt) {
	for _, a := range some {
		if !a.Wire.bid.Load().beat() {
			a.LookIn(driver.Never)
		}
	}
}

// Renew implements driver.Renewer. All servers are asked at once, and only majorities are waited for.
func (d half) Renew(ctx context.Context, due []*attempt) {
	shortest := due[0].TTL
	all := make([]*poll, len(due))
	for i, a := range due {
		all[i], shortest = a.Wire.bid.Load().extend(), min(shortest, a.TTL)
	}
	ctx, cancel := context.WithTimeout(ctx, distributed.RenewInterval(shortest))
	defer cancel()
	for _, p := range all {
		select {
		case <-p.decided:
		case <-ctx.Done():
			return
		}
	}
}

// ClaimTime implements driver.Renewer.
func (half) ClaimTime(a *attempt) time.Duration { return a.Window / claimPart }

// claimPart is the part of a window that a claim may take.
const claimPart = 4

// Drop implements driver.Driver. Each attempt is dropped as soon as its outcome is known: this waits for those of all.
func (d half) Drop(ctx context.Context, some []*attempt) {
	all := make([]<-chan struct{}, len(some))
	for i, a := range some {
		all[i] = a.Wire.bid.Load().depart()
	}
	for i, a := range some {
		select { // either may win: departed says what is known then
		case <-all[i]:
		case <-ctx.Done():
		}
		a.Wire.bid.Load().departed()
	}
}

// Share implements driver.Driver.
func (d half) Share(ctx context.Context, a *attempt) (driver.Standing, error) {
	one := a.Wire.bid.Load()
	if one.over() {
		return driver.Standing{}, distributed.ErrLeaseLost
	}
	one.mu.Lock()
	one.shared = true // before it is sent: whatever becomes of it, renewals reckon with it
	one.mu.Unlock()
	p := one.renewal("downgrade")
	one.toAll(one.call(downgradeScript, "s", 0, millis(a.TTL)), p.done)
	s := driver.Standing{Next: driver.Never}
	v, err := p.wait(ctx, time.Until(one.lasts()))
	switch {
	case v == refused:
		return s, distributed.ErrLeaseLost
	case err == nil && d.fences:
		a.Shared(s)
		s.Fences, err = d.Refill(ctx, a)
	}
	return s, err
}

// Ended implements driver.Driver. The votes and places that are left are given up here, so that an Enter that comes next is behind that on
// every server. An Enter that has adopted the lease does it itself.
func (half) Ended(a *attempt) {
	if one := end(a); !a.Adopted() {
		one.depart()
	}
}

// Close implements driver.Driver. It waits for releases under way, at most 2 s (closeGrace) if servers are unreachable.
func (d half) Close() {
	giveUp := time.Now().Add(closeGrace)
	d.refuse()
	d.lane.Flush(closeGrace)
	for time.Now().Before(giveUp) && !d.idle() {
		time.Sleep(closePoll)
	}
	d.cancel()
	for _, n := range d.nodes {
		n.close()
	}
	d.lane.Shut()
	d.once.Do(func() {}) // never listened: it stays so
	d.listens.Wait()
}

const (
	// closeGrace bounds how long Close waits for servers that do not answer. What is not released by then expires.
	closeGrace = 2 * time.Second
	// closePoll is how often Close looks whether all is done.
	closePoll = 2 * time.Millisecond
)

// idle reports that a majority of the servers has nothing left to do: what the others have expires.
func (b *Backend) idle() bool {
	var busy uint64
	for i, n := range b.nodes {
		include(&busy, i, !n.idle())
	}
	n := bits.OnesCount64(busy)
	return n == 0 || n <= len(b.nodes)-b.quorum && b.pauses.Load() > 0
}

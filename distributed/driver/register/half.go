package register

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/keyless"
)

type attempt = driver.Attempt[wire]

// wire is what is known of an attempt's claim. Until it is granted the one Look under way uses all of it, and from then on the one Renew
// under way: the mutex of the attempt is between them.
type wire struct {
	claim
	ended atomic.Bool // it neither waits nor holds any more

	// asking holds one during a Look, so that a Drop comes after it: else that Look could queue again what is removed. Enter sets it, which
	// comes before both. nil: there is no Look.
	asking chan struct{}
	unsure bool // guarded by asking: a request that was not answered may still bring the claim

	seen   sightings // nil: nobody has shared the lock
	turned time.Time // when the owners were found to have changed
	ahead  int       // in the queue

	at *server // that has the key; set by Prepare
}

// half is the Backend as its client half sees it.
type half struct{ *Backend }

var _ driver.Renewer[wire] = half{}

// Prepare implements driver.Driver.
func (d half) Prepare(_ context.Context, a *attempt) error {
	a.Wire.at = d.serverOf(a.Key)
	a.Lane = a.Wire.at.lane
	a.Wire.claim = claim{ID: d.newID(), Instance: a.Instance, Shared: a.Mode == distributed.Shared, Limit: a.Limit, TTL: a.TTL}
	return nil
}

// Enter implements driver.Driver. It assumes that no process uses the lock, which a Put tells: so a free lock takes one exchange.
func (d half) Enter(ctx context.Context, a *attempt, prev *driver.Prev[wire]) (s driver.Standing, err error) {
	w, before, known := &a.Wire, prev.Mine(), &Document{}
	if before != nil {
		known = nil
	}
	start, asked := time.Now(), 0    // when the first request was sent that the answer may be of; and how many documents were read
	removed, earlier := false, false // prev was, by the latest try, or by one before it that was not answered
	enter := func(l *lock, sent time.Time) bool {
		if asked++; asked > atOnce {
			a.Delayed(d.crowded(asked-1, start))
		}
		removed = before != nil && l.remove(before.Wire.ID)
		taken := l.take(w.claim, a.NoWait)
		if s = d.standingOf(a, l, taken); s.Kind == driver.Granted && w.unsure {
			sent = start // by an earlier try, perhaps
		}
		s.Sent = sent
		return taken || removed
	}
	for tries, again := 1, true; again; tries++ {
		within, cancel := context.WithDeadline(ctx, start.Add(a.Window))
		switch err = d.change(within, a.Key, known, enter); {
		case unanswered(err):
			w.unsure, earlier = true, earlier || removed
			fallthrough
		case errors.Is(err, ErrBusy):
			a.Delayed(err)
			again = pause(within, d.pauseAfter(tries))
		case errors.Is(err, ErrConflict) && !w.unsure: // nothing was done: the caller says for how long that may go on
			start, again = time.Now(), ctx.Err() == nil
		default:
			again = false
		}
		cancel()
		known, again = nil, again && !d.client.Closed() // after Close nobody would remove what another try brings
	}
	if err != nil {
		return s, err
	}
	switch {
	case s.Kind == driver.Queued:
		w.asking = make(chan struct{}, 1)
	case s.Kind == driver.Refused && w.unsure:
		d.sweep(a)
	}
	if removed || earlier {
		prev.Settle(driver.Removed)
	} else {
		prev.Settle(driver.Missing)
	}
	return s, nil
}

// standingOf is what a lock says to an attempt.
func (d half) standingOf(a *attempt, l *lock, changed bool) driver.Standing {
	w := &a.Wire
	now, ahead := time.Now(), index(l.Queue, w.ID)
	owner := index(l.Owners, w.ID) >= 0
	if changed || owner || ahead != w.ahead {
		w.turned, w.ahead = now, max(ahead, 0)
	}
	switch {
	case owner:
		return driver.Standing{Kind: driver.Granted, Contended: l.wanted(a.Instance), Next: driver.Never, RenewIn: shortestLook} // renewals look
	case ahead >= 0:
		return driver.Standing{Kind: driver.Queued, Holder: l.holder(), Next: d.jittered(w.interval(now))}
	}
	return driver.Standing{Kind: driver.Refused, Holder: l.holder()}
}

const (
	// shortestPoll is a few round trips. Each place ahead adds as much, so that a crowd asks no more often than a few.
	shortestPoll = time.Millisecond
	// longestPoll is the longest that a hand-over takes, though T/6 may be longer.
	longestPoll = 250 * time.Millisecond
	// pollShare of the time since the last hand-over passes between two questions: a long hold makes a late hand-over cheap.
	pollShare = 8
	// Only renewals tell a holder that another waits, so they come more often than every T/3: at first after shortestLook, a
	// usual MaxTenure, then each time after as long as the lease has lasted, up to longestLook and T/6.
	shortestLook, longestLook = 100 * time.Millisecond, time.Second
	// mostRead documents are read in one exchange, and mostWritten leases written at a time, which floods no service.
	mostRead, mostWritten = 100, 16
)

// interval is the time until a waiter's next question, more or less; an owner that may be dead is not left waiting for.
func (w *wire) interval(now time.Time) time.Duration {
	d := max(now.Sub(w.turned)/pollShare, shortestPoll*time.Duration(1+w.ahead))
	d = min(d, distributed.HeartbeatInterval(w.TTL), longestPoll)
	for _, s := range w.seen {
		d = min(d, max(s.at.Add(s.period()).Sub(now), shortestPoll))
	}
	return d
}

// Look implements driver.Driver, for one waiter. It takes out dead owners, and queues its claim again if the document was lost, and the
// queue with it.
func (d half) Look(ctx context.Context, some []*attempt) {
	a := some[0]
	w := &a.Wire
	w.asking <- struct{}{}
	defer func() { <-w.asking }()
	if !a.Waiting() {
		a.LookIn(driver.Never) // renewals tell a holder all
		return
	}
	if w.seen == nil {
		w.seen = sightings{}
	}
	var s driver.Standing
	err := d.change(ctx, a.Key, nil, func(l *lock, sent time.Time) (changed bool) {
		granted := index(l.Owners, w.ID) >= 0 // some time after the question before this one
		if !granted {
			changed = w.seen.reap(l, time.Now())
			if !l.has(w.ID) {
				w.Again++
				changed = l.take(w.claim, false)
			}
		}
		if s = d.standingOf(a, l, changed); !granted {
			s.Sent = sent
		}
		return changed
	})
	switch {
	case err == nil:
		a.Stands(s)
	case unanswered(err):
		w.unsure = true
		fallthrough
	default: // an owner that is overdue is no reason to hurry: a service that is away would be asked all the time
		a.LookIn(d.jittered(min(distributed.HeartbeatInterval(w.TTL), longestPoll)))
	}
}

// Renew implements driver.Renewer.
func (d half) Renew(ctx context.Context, due []*attempt) {
	room := make(chan struct{}, mostWritten)
	var written sync.WaitGroup
	defer written.Wait()
	for part := range slices.Chunk(due, mostRead) {
		keys := make([]string, len(part))
		for i, a := range part {
			keys[i] = a.Key
		}
		docs, err := d.store.GetMany(ctx, keys)
		for _, a := range part {
			known, read := docs[a.Key]
			if !read && err != nil {
				a.Unrenewed(err)
				continue
			}
			room <- struct{}{}
			written.Go(func() { d.renew(ctx, a, &known); <-room })
		}
	}
}

// renew has the beat of a claim count on. It takes out dead owners beside it, as a waiter does: or the permit of a process that was killed
// would never be free for callers that do not wait.
func (d half) renew(ctx context.Context, a *attempt, known *Document) {
	w := &a.Wire
	var sent time.Time
	var held, wanted bool
	err := d.change(ctx, a.Key, known, func(l *lock, _ time.Time) bool {
		i := index(l.Owners, w.ID)
		if held = i >= 0 && !w.ended.Load(); held { // else a request that came late may have brought it again
			l.Owners[i].Beat++
			if w.seen == nil && len(l.Owners) > 1 {
				w.seen = sightings{}
			}
			if w.seen != nil {
				w.seen.reap(l, time.Now())
			}
		}
		sent, wanted = time.Now(), l.wanted(a.Instance)
		return held
	})
	switch {
	case err != nil:
		a.Unrenewed(err)
	case held:
		a.Renewed(sent, wanted) // others count from their reading of this beat, which comes later (rule K4)
		if l := a.Lease(); l != nil {
			l.RenewBy(sent.Add(min(max(sent.Sub(w.turned), shortestLook), longestLook, distributed.HeartbeatInterval(w.TTL))))
		}
	default:
		a.Gone()
	}
}

// ClaimTime implements driver.Renewer: a grant may be old, for a Store that did not answer may have given it long ago.
func (half) ClaimTime(a *attempt) time.Duration { return a.Window / 2 }

// Drop implements driver.Driver, for one claim.
func (d half) Drop(ctx context.Context, some []*attempt) {
	a := some[0]
	w := &a.Wire
	if w.asking != nil {
		w.asking <- struct{}{}
		defer func() { <-w.asking }()
	}
	found, err := d.remove(ctx, a, w.unsure)
	if err == nil && w.unsure { // else it is dropped again
		d.sweep(a)
	}
	switch {
	case found && err == nil:
		a.Dropped(driver.Removed)
	case err == nil:
		a.Dropped(driver.Missing)
	case unanswered(err):
		a.Unanswered(err)
	default:
		a.DropRefused(err)
	}
}

// remove takes the claim of an attempt out. unsure: it changes a document that lacks the claim, too, for a request may be on its way that
// would find the document as it was read.
func (d half) remove(ctx context.Context, a *attempt, unsure bool) (found bool, err error) {
	err = d.change(ctx, a.Key, nil, func(l *lock, _ time.Time) bool {
		found = l.remove(a.Wire.ID)
		return found || unsure
	})
	return found, err
}

// sweep looks a few times, until a claim window has passed, for the claim of an attempt that has ended: a request that was not answered may
// bring it, or bring it again, when the document is absent. Callers that do not wait would find that lock held until the Store forgets it.
func (d half) sweep(a *attempt) {
	a.Wire.ended.Store(true)
	d.client.Go(func() {
		for part := a.Window / 4; part <= a.Window; part *= 2 {
			if !pause(d.ctx, d.jittered(part/2)) {
				return
			}
			select {
			case a.Wire.at.expired <- struct{}{}:
				found, _ := d.remove(d.ctx, a, false)
				<-a.Wire.at.expired
				if found {
					return
				}
			case <-d.ctx.Done():
				return
			}
		}
	})
}

// Ended implements driver.Driver. The claim of a lease that has expired is removed, once: no Store does so in time for those that do not
// wait (rule K5). When a service is away all leases expire together.
func (d half) Ended(a *attempt) {
	a.Wire.ended.Store(true)
	if l := a.Lease(); l != nil && distributed.Over(time.Now(), l.Until()) {
		d.client.Go(func() {
			select {
			case a.Wire.at.expired <- struct{}{}:
				d.Drop(d.ctx, []*attempt{a})
				<-a.Wire.at.expired
			case <-d.ctx.Done(): // closed: what is left expires
			}
		})
	}
}

// Refill implements driver.Driver.
func (d half) Refill(context.Context, *attempt) (driver.Block, error) {
	return driver.Block{}, keyless.Errorf("%s: fences: %w", d.name, errors.ErrUnsupported)
}

// Share implements driver.Driver.
func (d half) Share(context.Context, *attempt) (driver.Standing, error) {
	return driver.Standing{}, keyless.Errorf("%s: downgrade: %w", d.name, errors.ErrUnsupported)
}

// Close implements driver.Driver. It waits for a second only: a place that is not left costs the others a claim window, and a lease T.
func (d half) Close() {
	d.mu.Lock()
	servers := slices.Collect(maps.Values(d.servers))
	d.mu.Unlock()
	var all sync.WaitGroup
	for _, s := range servers {
		all.Go(func() { s.lane.Flush(time.Second) })
	}
	all.Wait()
	d.cancel()
	for _, s := range servers {
		s.lane.Shut()
	}
}

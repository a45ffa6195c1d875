package sqllock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
)

// attempt is one Enter and what came of it: see package driver. Its token is its own: what the database has under it is this attempt's.
type attempt = driver.Attempt[ours]

// ours is what we keep of an attempt.
type ours struct {
	claim             // set by Prepare; Enter adds to it
	row     *row      // of the goroutine that asks: the gate that it has passed; nil: none
	first   time.Time // of the same: when it began, and
	began   time.Time // its latest try
	unknown bool      // set by Enter: the database may know of it
	stuck   bool      // of the Drop under way: its row was locked by somebody who stands still
	tries   int       // of the same
	granted time.Time // set before there is a lease: when the statement was sent that got it
	seat    bool      // set before there is a lease: it is a row of the waiters; else it is the lock's owner

	mu       sync.Mutex    // guards all below
	pace     pace          // of a waiter's looks
	beatDue  time.Time     // its next heartbeat
	notified bool          // it may take the lock, by a notification since the last look
	changing bool          // a transaction of a look is under way
	look     time.Duration // between the latest two of a holder
}

// half is the Backend as its client half sees it.
type half struct{ *Backend }

var _ driver.Renewer[ours] = half{}

func (d half) settings() driver.Settings {
	return driver.Settings{
		Name: "sqllock", LookMost: renewBatch, Looks: 1, DropMost: maxBatch, Drops: maxRemoving, DropsHere: 1,
		Pause: func(int) time.Duration { return removalPause + rand.N(removalPause) },
		Apart: d.apart, Counts: true,
	}
}

// apart runs a request on a goroutine that Close waits for. It reports false when the Backend is closed. The goroutine stays for the next one,
// because its stack has grown in the depths of the driver: that saves a lone caller on SQLite a tenth of its time.
func (b *Backend) apart(enter func()) bool {
	open := b.client.Begin()
	if open {
		b.crew.Do(enter)
	}
	return open
}

// Prepare implements driver.Driver: the attempt passes the gates.
func (d half) Prepare(ctx context.Context, a *attempt) error {
	w := &a.Wire
	a.Lane, w.first, w.token, w.holder = d.lane, time.Now(), d.newToken(), cut(a.Instance, longestInstance)
	w.name, w.full = storedName(a.Key)
	w.mode, w.limit, w.ttl, w.noWait, w.queueMost = a.Mode, a.Limit, a.TTL, a.NoWait, a.QueueMost
	d.known.add(a)
	err := d.pass(ctx, a)
	if err != nil {
		d.known.remove(a)
	}
	return err
}

// Enter implements driver.Driver. The statement does not end with ctx, so that a caller that goes does not have the driver close the
// connection. The claim window bounds it, because a later answer is of no use.
func (d half) Enter(ctx context.Context, a *attempt, prev *driver.Prev[ours]) (driver.Standing, error) {
	defer d.leave(a)
	w, before := &a.Wire, prev.Mine()
	if before != nil {
		h := handleOf(before)
		w.prev, w.contended = &h, before.Lease().Contended()
	}
	w.contended = w.contended || a.Limit > 0 && d.known.others(a) // a permit beside them takes a transaction
	for {
		got, err := d.request(ctx, a)
		switch {
		case err == nil:
			return d.answered(a, before, prev, got), nil
		case !isTimeout(err) && effectOf(err) != collided:
			return driver.Standing{}, err
		}
		d.leave(a)
		if !d.again(ctx, a) {
			return driver.Standing{}, err
		}
		if err := d.pass(ctx, a); err != nil {
			return driver.Standing{}, err
		}
	}
}

// request sends the request. That to SQLite ends in time to be tried again. Not every driver lets go when a context ends: one of SQLite waits
// for a busy file as long as its busy_timeout says. The caller does not wait for that.
func (b *Backend) request(ctx context.Context, a *attempt) (answer, error) {
	w, begin := &a.Wire, time.Now()
	end := w.began.Add(a.Window)
	defer time.AfterFunc(time.Until(end), a.Overdue).Stop()
	if b.is.oneWriter {
		end = begin.Add(end.Sub(begin) / 2)
	}
	bound, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	defer cancel()
	defer context.AfterFunc(b.asking, cancel)()
	got, err := b.entered(bound, &w.claim)
	b.observe(begin, err)
	w.unknown = w.unknown || err == nil || effectOf(err) == lost
	return got, explain("enter", err)
}

// busyTime is how long a request to SQLite is tried again. A file that is busy for so long is as good as away, and whoever closes a
// Locker waits for its requests.
const busyTime = 30 * time.Second

// again reports that the request is to be tried once more: SQLite lets in one writer at a time, in no order, so it may find the file busy
// for the whole of its time. That is contention, and no outage, if the file can be read. The answer to a new try is worth as much as that
// to the first would have been, because a lease counts from the sending of the try that got it.
func (b *Backend) again(ctx context.Context, a *attempt) bool {
	if !b.is.oneWriter || a.NoWait || ctx.Err() != nil || b.client.Closed() || time.Since(a.Wire.first) > busyTime {
		return false
	}
	look, cancel := context.WithTimeout(ctx, a.Window/2)
	defer cancel()
	start := time.Now()
	_, _, err := b.isHeld(look, &a.Wire.claim)
	b.observe(start, err)
	return err == nil
}

// answered takes the answer. The lease before was released by it, or had been lost.
func (b *Backend) answered(a, before *attempt, prev *driver.Prev[ours], got answer) driver.Standing {
	released := before != nil && got.prevHeld
	if released {
		prev.Settle(driver.Removed)
	} else {
		prev.Settle(driver.Lost)
	}
	if got.outcome == queuedUp || released && got.outcome != granted {
		b.poke(a.Wire.name, a) // who holds it, if that is in this process, is contended
	}
	switch got.outcome {
	case granted:
		return a.Wire.got(got)
	case queuedUp:
		return driver.Standing{Kind: driver.Queued, Sent: got.sent, Holder: got.holder, Next: b.queued(a, got.ahead)}
	}
	return driver.Standing{Kind: driver.Refused, Holder: got.holder}
}

// got is a grant.
func (w *ours) got(g answer) driver.Standing {
	w.seat, w.granted, w.look = g.seat, g.sent, firstHolderLook
	return driver.Standing{Kind: driver.Granted, Sent: g.sent, Pushed: w.unanswered, Fences: g.fences(), Contended: g.contended, Next: firstHolderLook}
}

// handleOf is what is to be released of an attempt that nobody uses any more.
func handleOf(a *attempt) handle {
	h := handle{token: a.Wire.token}
	if a.Lease() != nil {
		h.seat = a.Wire.seat
		drawn, last := a.Drawn()
		h.drawn, h.last = int64(drawn), int64(last)
	}
	return h
}

// Refill implements driver.Driver. Only who holds the lock gets more: a successor may have drawn fences already.
func (d half) Refill(ctx context.Context, a *attempt) (driver.Block, error) {
	got, err := d.changeHeld(ctx, a, "refill", func(s *state) answer { return s.refill(a.Wire.token) })
	return got.fences(), err
}

// Share implements driver.Driver: the owner becomes a reader, and the readers at the head of the queue find so.
func (d half) Share(ctx context.Context, a *attempt) (driver.Standing, error) {
	got, err := d.changeHeld(ctx, a, "downgrade", func(s *state) answer { return s.downgrade(a.Wire.token) })
	if err == nil {
		d.poke(a.Wire.name, a)
	}
	return driver.Standing{Fences: got.fences(), Next: firstHolderLook}, err
}

// changeHeld changes the lock as its owner, within a bounded time.
func (b *Backend) changeHeld(ctx context.Context, a *attempt, what string, decide func(*state) answer) (got answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(a.Window, time.Second))
	defer cancel()
	start := time.Now()
	err = b.change(ctx, a.Wire.name, func(s *state) { got = decide(s) })
	b.observe(start, err)
	if errors.Is(err, errNoRow) || err == nil && got.outcome == vanished {
		a.Gone()
		return got, distributed.ErrLeaseLost
	}
	return got, b.client.OrClosed(explain(what, err))
}

// Ended implements driver.Driver. If the lease was lost, others of its lock look at it now. When it is released, they do so afterwards.
func (d half) Ended(a *attempt) {
	d.leave(a)
	d.known.remove(a)
	if l := a.Lease(); l != nil && distributed.Over(time.Now(), l.Until()) {
		d.poke(a.Wire.name, a)
	}
}

// closeTime is how long Close tries to take places and unread grants out of the database, and waits for answers to requests; later
// they expire.
const closeTime = 2 * time.Second

// Close implements driver.Driver.
func (d half) Close() {
	d.cancel()
	d.lane.Flush(closeTime)
	d.stopAsking()
	d.lane.Shut()
}

// ClaimTime implements driver.Renewer: a quarter of the window, which is left in any case, is plenty.
func (half) ClaimTime(*attempt) time.Duration { return 0 }

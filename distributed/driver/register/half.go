package register

import (
	"context"
	"errors"
	"maps"
	"math"
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
	ended   atomic.Bool // it neither waits nor holds any more
	dropped atomic.Bool // and its claim was removed. An Enter with it as prev, a Drop and settle each set it, and who comes later says Removed

	// asking holds one during a Look, so that a Drop comes after it: else that Look could queue again what is removed. Enter sets it, which
	// comes before both. nil: there is no Look.
	asking chan struct{}
	unsure bool   // guarded by asking: a request that was not answered may still bring the claim
	fence  uint64 // of the grant: a claim compares it. Whoever asks sets it, before there is a lease

	seen    sightings               // nil: nobody has shared the lock
	turned  time.Time               // when the owners were found to have changed
	ahead   int                     // in the queue
	beaten  time.Time               // when the beat was sent that was answered last, its own or its session's
	session atomic.Pointer[session] // vouches for it, or is about to
	written time.Time               // when its claim was, for the last time, for its session

	began time.Time // to wait
	// A watch is begun once, by the Look or the Renew under way, unless it has ended.
	unwatch atomic.Pointer[context.CancelFunc]
	watched atomic.Bool              // each change comes as news
	news    atomic.Pointer[Document] // that no Look has seen

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

// Enter implements driver.Driver. It assumes that no other process has used the lock, which a Put tells: so a free lock takes one exchange.
func (d half) Enter(ctx context.Context, a *attempt, prev *driver.Prev[wire]) (s driver.Standing, err error) {
	w, before, known := &a.Wire, prev.Mine(), d.guess(a.Key)
	if before != nil && known.Version == "" { // then it is not absent
		known = nil
	}
	most := math.MaxInt
	switch {
	case a.NoWait:
		most = 0
	case a.QueueMost > 0:
		most = a.QueueMost
	}
	start, asked := time.Now(), 0    // when the first request was sent that the answer may be of; and how many documents were read
	removed, earlier := false, false // prev was, by the latest try, or by one before it that was not answered
	enter := func(l *lock, sent time.Time) bool {
		if asked++; asked > atOnce {
			a.Delayed(d.crowded(asked-1, start))
		}
		removed = before != nil && l.remove(before.Wire.ID)
		reaped := most < math.MaxInt && d.reapRemembered(ctx, a.Key, l)
		taken := l.take(w.claim, most)
		if s = d.standingOf(a, l, taken); s.Kind == driver.Granted && w.unsure {
			sent = start // by an earlier try, perhaps
		}
		s.Sent = sent
		return taken || removed || reaped
	}
	for tries, again := 1, true; again; tries++ {
		within, cancel := context.WithDeadline(ctx, start.Add(a.Window))
		var l lock
		switch l, err = d.change(within, a.Key, known, enter); {
		case unanswered(err):
			w.unsure, earlier = true, earlier || removed
			fallthrough
		case errors.Is(err, ErrBusy):
			a.Delayed(err)
			again = pause(within, d.pauseAfter(tries))
		case errors.Is(err, ErrConflict) && !w.unsure: // nothing was done: the caller says for how long that may go on
			start, again = time.Now(), ctx.Err() == nil
		default:
			s.Fences, again = l.fencesOf(w.ID), false
			w.fence = s.Fences.First
		}
		cancel()
		known, again = nil, again && !d.client.Closed() // after Close nobody would remove what another try brings
	}
	if err != nil {
		return s, err
	}
	switch {
	case s.Kind == driver.Queued:
		w.asking, w.began = make(chan struct{}, 1), time.Now()
	case s.Kind == driver.Refused && w.unsure:
		d.sweep(a)
	}
	if before != nil { // it is not dropped
		earlier = before.Wire.dropped.Swap(true) || earlier
		if before.Wire.unsure {
			d.sweep(before)
		}
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
		return driver.Standing{
			Kind: driver.Granted, Fences: l.fencesOf(w.ID), Contended: l.wanted(a.Instance), Next: driver.Never, RenewIn: shortestLook, // renewals look
		}
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
	// watchAfter is for how long a waiter asks: to begin a watch, and end it, takes a service more.
	watchAfter = 20 * time.Millisecond
	// mostRead documents are read in one exchange, and mostWritten leases written at a time, which floods no service.
	mostRead, mostWritten = 100, 16
)

// interval is the time until a waiter's next question, more or less; an owner that may be dead is not left waiting for.
func (w *wire) interval(now time.Time) time.Duration {
	d := min(max(now.Sub(w.turned)/pollShare, shortestPoll*time.Duration(1+w.ahead)), longestPoll)
	if w.watched.Load() {
		d = math.MaxInt64
	}
	d = min(d, distributed.HeartbeatInterval(w.TTL))
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
	if a.Waiting() {
		w.asking <- struct{}{}
		defer func() { <-w.asking }()
	}
	news := w.news.Swap(nil)
	if !a.Waiting() { // any more: a Drop may have come first, and what it removed must not be queued again
		d.notice(a, news)
		a.LookIn(driver.Never)
		return
	}
	if time.Since(w.began) > watchAfter {
		d.watch(a)
	}
	if w.seen == nil {
		w.seen = sightings{}
	}
	var known *reading
	if news != nil && d.showsLatest(w, *news) {
		known = &reading{Document: *news}
	} else {
		news = nil
	}
	var s driver.Standing
	l, err := d.change(ctx, a.Key, known, func(l *lock, sent time.Time) (changed bool) {
		granted := index(l.Owners, w.ID) >= 0 // some time after the question before this one
		if !granted {
			changed = d.reap(ctx, w.seen, l)
			if !l.has(w.ID) {
				w.Again++
				changed = l.take(w.claim, math.MaxInt)
			}
		}
		if s = d.standingOf(a, l, changed); !granted && (news == nil || changed) {
			s.Sent = sent
		}
		return changed
	})
	switch {
	case err == nil:
		s.Fences = l.fencesOf(w.ID)
		w.fence = s.Fences.First
		a.Stands(s)
	case unanswered(err):
		w.unsure = true
		fallthrough
	default: // an owner that is overdue is no reason to hurry: a service that is away would be asked all the time
		a.LookIn(d.jittered(min(distributed.HeartbeatInterval(w.TTL), longestPoll)))
	}
}

// showsLatest reports that a document has the claim as it was queued last. A watch may bring an older one, which says nothing about it.
func (d half) showsLatest(w *wire, doc Document) bool {
	l, err := d.decode(doc)
	i, q := index(l.Owners, w.ID), index(l.Queue, w.ID)
	return err == nil && (i >= 0 && l.Owners[i].Again == w.Again || q >= 0 && l.Queue[q].Again == w.Again)
}

// Renew implements driver.Renewer.
func (d half) Renew(ctx context.Context, due []*attempt) {
	room := make(chan struct{}, mostWritten)
	var written sync.WaitGroup
	defer written.Wait()
	many, _ := d.store.(Many)
	for part := range slices.Chunk(due, mostRead) {
		var docs map[string]Document
		var err error
		if many != nil {
			keys := make([]string, len(part))
			for i, a := range part {
				keys[i] = a.Key
			}
			sent := time.Now()
			docs, err = many.GetMany(ctx, keys)
			_ = d.exchanged(sent, err)
		}
		for _, a := range part {
			doc, read := docs[a.Key]
			known := &reading{Document: doc}
			switch {
			case many == nil:
				known = nil
			case !read && err != nil:
				a.Unrenewed(err)
				continue
			}
			room <- struct{}{}
			written.Go(func() { d.renew(ctx, a, known); <-room })
		}
	}
}

// renew has the beat of a claim count on, if it is time, and else only looks. It takes out dead owners beside it, as a waiter does: or the
// permit of a process that was killed would never be free for callers that do not wait.
func (d half) renew(ctx context.Context, a *attempt, known *reading) {
	w := &a.Wire
	d.watch(a)
	beats := time.Since(w.beaten) > a.TTL/beatShare
	s, vouched, err := d.vouchFor(ctx, a, beats)
	if err != nil {
		a.Unrenewed(err)
		return
	}
	if beats && s == nil && known == nil {
		known = d.guess(a.Key)
	}
	var sent, beaten time.Time
	var held, wanted, writes bool
	_, err = d.change(ctx, a.Key, known, func(l *lock, _ time.Time) bool {
		if w.seen == nil && len(l.Owners) > 1 {
			w.seen = sightings{}
		}
		reaped := w.seen != nil && d.reap(ctx, w.seen, l) // first: what is not written yet was not seen
		i := index(l.Owners, w.ID)
		sent, beaten, wanted = time.Now(), w.beaten, l.wanted(a.Instance)
		held = i >= 0 && !w.ended.Load() && (l.Owners[i].Session == "" || s != nil && l.Owners[i].Session == s.key)
		// else a request that came late may have brought it again: also before there is a lease, and then with other fences
		if held = held && (a.Lease() != nil || l.Owners[i].Fence == w.fence); !held {
			return reaped
		}
		c := &l.Owners[i]
		switch {
		case s == nil:
			if writes = beats; beats {
				c.Beat++
				beaten = sent
			}
		case c.Session == "" || sent.Sub(w.written) > sessionMemory/2:
			c.Session, c.Beat, beaten, writes = s.key, c.Beat+1, vouched, true
		default:
			beaten, writes = vouched, false
		}
		return reaped || writes
	})
	switch {
	case err != nil:
		a.Unrenewed(err)
	case held:
		w.beaten = beaten
		if writes {
			w.written = sent
		}
		a.Renewed(beaten, wanted) // others count from their reading of this beat, which comes later (rule K4)
		next := min(max(sent.Sub(w.turned), shortestLook), longestLook, distributed.HeartbeatInterval(w.TTL))
		if w.watched.Load() {
			next = distributed.RenewInterval(w.TTL)
		}
		if l := a.Lease(); l != nil {
			l.RenewBy(sent.Add(next))
		}
	default:
		a.Gone()
	}
}

// vouchFor returns the session of a lease, and when that sent its beat. A lease joins one when its second beat is due. nil: its own beat counts.
func (d half) vouchFor(ctx context.Context, a *attempt, beats bool) (s *session, vouched time.Time, err error) {
	s = a.Wire.session.Load()
	if s == nil && beats && !a.Wire.beaten.IsZero() && !d.forgetful {
		s = d.join(a)
	}
	if s == nil {
		return nil, time.Time{}, nil
	}
	if vouched, err = d.vouch(ctx, s); errors.Is(err, distributed.ErrLeaseLost) { // so is the lease, if its claim names the session
		d.part(a, s)
		return nil, time.Time{}, nil
	}
	return s, vouched, err
}

// beatShare of T after a beat the next look is one, too: it comes before a renewal is due, which is after T/3.
const beatShare = 4

// watch has all changes looked at, while an attempt waits or holds, if the Store tells of them.
func (d half) watch(a *attempt) {
	w := &a.Wire
	if d.watcher == nil || w.unwatch.Load() != nil {
		return
	}
	ctx, cancel := context.WithCancel(d.ctx)
	w.unwatch.Store(&cancel)
	if w.ended.Load() || !d.client.Go(func() {
		for tries := 1; pause(ctx, 0); tries++ {
			_ = d.watcher.Watch(ctx, a.Key, func(doc Document) { // until it works again, it is as if there were none
				tries = 0
				w.watched.Store(true)
				w.news.Store(&doc)
				a.Poke()
			})
			w.watched.Store(false)
			a.Poke()
			pause(ctx, d.pauseAfter(max(tries, 1)))
		}
	}) {
		cancel()
	}
}

// notice takes what a watch says to a holder. It may be older than the lease, so only a renewal tells that this is lost.
func (d half) notice(a *attempt, news *Document) {
	if news == nil {
		return
	}
	l, err := d.decode(*news)
	if lease := a.Lease(); lease != nil && (err != nil || index(l.Owners, a.Wire.ID) < 0) {
		lease.RenewBy(time.Now())
		return
	}
	a.Noticed(l.wanted(a.Instance))
}

// reap takes out dead owners.
func (d half) reap(ctx context.Context, seen sightings, l *lock) (changed bool) {
	return seen.reap(l, time.Now(), func(c claim) vigil { return d.watchOver(ctx, c) })
}

// reapRemembered takes out dead owners that callers have found here who do not wait.
func (d half) reapRemembered(ctx context.Context, key string, l *lock) (changed bool) {
	if len(l.Owners) == 0 { // or that is only guessed
		return false
	}
	d.mu.Lock()
	seen := maps.Clone(d.seen[key])
	d.mu.Unlock()
	if seen == nil {
		seen = sightings{}
	}
	changed = d.reap(ctx, seen, l)
	d.mu.Lock()
	defer d.mu.Unlock()
	for other := range d.seen {
		if len(d.seen) < mostRemembered {
			break
		}
		delete(d.seen, other) // any: the next such callers begin anew
	}
	d.seen[key] = seen
	return changed
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
	if err == nil {
		found = w.dropped.Swap(true) || found
	}
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
	_, err = d.change(ctx, a.Key, d.guess(a.Key), func(l *lock, _ time.Time) bool {
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
	if unwatch := a.Wire.unwatch.Load(); unwatch != nil { // else a watch that begins finds that it has ended
		(*unwatch)()
	}
	if s := a.Wire.session.Load(); s != nil { // as above
		d.client.Go(func() { d.settle(a, s) })
	}
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

// Refill implements driver.Driver. A repeated one reserves more than it needs.
func (d half) Refill(ctx context.Context, a *attempt) (driver.Block, error) {
	if d.forgetful {
		return driver.Block{}, keyless.Errorf("%s: fences: %w", d.name, errors.ErrUnsupported)
	}
	l, err := d.changeHeld(ctx, a, func(*claim) bool { return true })
	return l.fencesOf(a.Wire.ID), err
}

// Share implements driver.Driver.
func (d half) Share(ctx context.Context, a *attempt) (driver.Standing, error) {
	l, err := d.changeHeld(ctx, a, func(c *claim) (changed bool) {
		changed = !c.Shared // else by an earlier try
		c.Shared = true
		return changed
	})
	return driver.Standing{Fences: l.fencesOf(a.Wire.ID), Next: driver.Never}, err
}

// changeHeld changes the claim of a lease, which gets new fences then.
func (d half) changeHeld(ctx context.Context, a *attempt, change func(*claim) bool) (lock, error) {
	held := false
	l, err := d.change(ctx, a.Key, d.guess(a.Key), func(l *lock, _ time.Time) bool {
		i := index(l.Owners, a.Wire.ID)
		if held = i >= 0; !held || !change(&l.Owners[i]) {
			return false
		}
		l.Owners[i].Fence = l.fences()
		l.admitHeads()
		return true
	})
	if err == nil && !held {
		err = distributed.ErrLeaseLost
	}
	return l, err
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

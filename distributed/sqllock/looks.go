package sqllock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
)

const (
	// firstLook is the first look of a waiter at the head of the queue: while a lock changes hands often, it is soon its turn. It is
	// about what a tenure of 128 short turns lasts.
	firstLook = 500 * time.Microsecond
	// looksPerWait makes a waiter that has waited for t look again after t/8: a hand-over is found late by an eighth of the wait.
	looksPerWait = 8
	// longestLook bounds that, besides H; for each deepLooks waiters before it once more. They come first, and a queue that
	// moves is seen to, so what is far back need not look so often, which costs a fleet without idle connections one each time.
	longestLook = 500 * time.Millisecond
	deepLooks   = 16

	// pushedLook bounds H where hand-overs are pushed. Nobody tells of a holder that has died.
	pushedLook = 2 * time.Second

	// firstHolderLook is when a holder first looks whether somebody waits; most holds are shorter. The looks then become as
	// rare as holderLook: with the default MaxTenure the others wait for half of that anyway.
	firstHolderLook = 20 * time.Millisecond
	holderLook      = 250 * time.Millisecond
	// looksPerBatch stretches holderLook if there are so many leases that a look takes several statements.
	looksPerBatch = renewBatch

	// shortestLookTime bounds a look, or half a TTL if that is longer.
	shortestLookTime = time.Second
)

// pace is how often a waiter looks: ever less often, until it comes nearer to the head.
type pace struct {
	since time.Time // it has come nearer
	ahead int       // waiters before it
}

func (p *pace) restart(now time.Time, ahead int) { p.since, p.ahead = now, ahead }

func (p *pace) next(now time.Time, longest time.Duration) time.Duration {
	wait := max(now.Sub(p.since)/looksPerWait, firstLook*time.Duration(1+p.ahead))
	wait = min(wait, longest)
	return wait*3/4 + rand.N(wait/2+1) // jitter, so that the looks of many do not meet
}

// queued begins the looks and heartbeats of a place behind so many, and returns when to look first.
func (b *Backend) queued(a *attempt, ahead int) time.Duration {
	w, now := &a.Wire, time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beatDue = now.Add(distributed.HeartbeatInterval(a.TTL))
	w.pace.restart(now, ahead)
	return b.nextLook(w)
}

// nextLook is when a waiter looks again that has seen that it is not its turn. The caller holds the mutex.
func (b *Backend) nextLook(w *ours) time.Duration {
	if b.pushed() && time.Since(w.pace.since) > firstLook { // a notification comes; one look, for one that came too soon
		return min(distributed.HeartbeatInterval(w.ttl), pushedLook)
	}
	return w.soon()
}

// soon is when a waiter looks again that has seen nothing, or something that has changed meanwhile. The caller holds mu.
func (w *ours) soon() time.Duration {
	longest := longestLook + longestLook*time.Duration(w.pace.ahead)/deepLooks
	return w.pace.next(time.Now(), min(distributed.HeartbeatInterval(w.ttl), longest))
}

// round is one round of looks: heartbeats, and looks at the locks that are waited for or held here. What falls due while it is at work
// shares the next one.
type round struct {
	b       *Backend
	timeout time.Duration
	beats   []*attempt
	places  map[string]*attempt // by token
	pushed  []*attempt          // that were notified, so that there is no need to look
	leases  []*attempt
}

// Look implements driver.Driver.
func (d half) Look(_ context.Context, some []*attempt) {
	r := newRound(d.Backend, some)
	for _, a := range r.pushed {
		r.aside(a, r.take)
	}
	r.beat()
	r.lookAtPlaces()
	r.lookAtLeases()
}

func newRound(b *Backend, due []*attempt) *round {
	r := &round{b: b, places: make(map[string]*attempt), timeout: time.Minute}
	now := time.Now()
	for _, a := range due {
		w := &a.Wire
		waits := a.Waiting()
		w.mu.Lock()
		beat := waits && !now.Before(w.beatDue)
		pushed, changing := w.notified, w.changing
		w.notified = false
		w.mu.Unlock()
		switch {
		case waits && changing: // which plans the next look
			a.LookIn(driver.Never)
		case waits && pushed:
			r.pushed = append(r.pushed, a)
		case waits:
			r.places[w.token] = a
		case a.Held():
			r.leases = append(r.leases, a)
		default:
			continue
		}
		if beat {
			r.beats = append(r.beats, a)
		}
		r.timeout = min(r.timeout, a.Window)
	}
	r.timeout = max(r.timeout, shortestLookTime)
	if len(r.beats) > 0 {
		r.gatherBeats(now)
	}
	return r
}

// gatherBeats adds the places whose heartbeat is due soon, so that all share a statement from then on.
func (r *round) gatherBeats(now time.Time) {
	for _, a := range r.b.known.all() {
		waits := a.Waiting()
		a.Wire.mu.Lock()
		ahead := a.Wire.beatDue.Sub(now)
		a.Wire.mu.Unlock()
		if waits && ahead > 0 && ahead < distributed.HeartbeatInterval(a.TTL)/3 {
			r.beats = append(r.beats, a)
		}
	}
}

// ask runs a statement of the round.
func (r *round) ask(fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.b.ctx, r.timeout)
	defer cancel()
	start := time.Now()
	err := retrying(ctx, func() error { return fn(ctx) })
	r.b.observe(start, err)
	return err
}

// beat sends the heartbeats. One that fails is sent with the next look.
func (r *round) beat() {
	for rest := r.beats; len(rest) > 0; {
		some := rest[:min(len(rest), renewBatch)]
		rest = rest[len(some):]
		tokens := make([]string, len(some))
		for i, a := range some {
			tokens[i] = a.Wire.token
		}
		text, args := r.b.st().list(r.b.st().beat, tokens)
		sent := time.Now()
		err := r.ask(func(ctx context.Context) error {
			_, err := r.b.db.ExecContext(ctx, text, args...)
			return err
		})
		if err != nil {
			continue
		}
		for _, a := range some {
			a.Wire.mu.Lock()
			a.Wire.beatDue = sent.Add(distributed.HeartbeatInterval(a.TTL))
			a.Wire.mu.Unlock()
		}
	}
}

// sight is what a look has seen of a place.
type sight struct {
	holds        bool
	owner        string
	mode         distributed.Mode // of the owner
	left         int64            // of the owner's lease, and
	leftMembers  int64            // of the longest of the other readers' leases
	ahead        int              // live waiters before it
	writersAhead int
	overlong     bool // a right seems to last longer than its TTL: the database's clock was set back
	instance     string
	members      int
	sharing      int   // live leases of those
	soonest      int64 // the shortest of them
	tightest     int   // limit of a shared waiter and of those before it; 0: none has one
}

// free returns how long the lock is still taken for a waiter of this mode; 0: not at all.
func (s *sight) busy(mode distributed.Mode) time.Duration {
	busy := int64(0)
	if s.owner != "" && (mode == distributed.Exclusive || s.mode == distributed.Exclusive) {
		busy = max(s.left, 0)
	}
	if mode == distributed.Exclusive {
		busy = max(busy, s.leftMembers)
	}
	return time.Duration(busy) * time.Microsecond
}

// room returns how long a shared waiter is kept out at most by limits, unless somebody releases or renews; 0: it is not. The rule is
// line.turn's.
func (s *sight) room() time.Duration {
	held, soonest := s.sharing, s.soonest
	if s.owner != "" && s.left > 0 {
		held++
		if s.sharing == 0 || s.left < soonest {
			soonest = s.left
		}
	}
	if s.tightest == 0 || held+s.ahead < s.tightest {
		return 0
	}
	return time.Duration(max(soonest, 1)) * time.Microsecond
}

// holder names the owner, and says how many readers share the lock with it.
func (s *sight) holder() string {
	if s.owner == "" || s.left <= 0 {
		return ""
	}
	return distributed.HolderText(s.instance, s.members)
}

// lookAtPlaces looks at all places in one statement, and takes what is free.
func (r *round) lookAtPlaces() {
	tokens := make([]string, 0, len(r.places))
	for token := range r.places {
		tokens = append(tokens, token)
	}
	for len(tokens) > 0 {
		some := tokens[:min(len(tokens), renewBatch)]
		tokens = tokens[len(some):]
		var seen map[string]sight
		sent := time.Now()
		err := r.ask(func(ctx context.Context) (err error) {
			seen, err = r.b.look(ctx, some)
			return err
		})
		for _, token := range some {
			a := r.places[token]
			s, found := seen[token]
			switch {
			case err != nil:
				r.b.lookAgain(a)
			case found && s.overlong:
				r.aside(a, r.cut)
			case !found || s.holds || r.b.mayTake(a, &s, sent):
				r.aside(a, r.take)
			}
		}
	}
}

func (b *Backend) look(ctx context.Context, tokens []string) (map[string]sight, error) {
	seen := make(map[string]sight, len(tokens))
	text, args := b.st().list(b.st().places, tokens)
	err := b.rows(ctx, b.db, text, args, func(scan func(...any) error) error {
		var token string
		var s sight
		err := scan(&token, &s.holds, &s.owner, &s.mode, &s.left, &s.leftMembers, &s.ahead, &s.writersAhead, &s.overlong, &s.instance, &s.members,
			&s.sharing, &s.soonest, &s.tightest)
		seen[token] = s
		return err
	})
	return seen, err
}

// mayTake reports that it is the place's turn, or plans the next look.
func (b *Backend) mayTake(a *attempt, s *sight, sent time.Time) bool {
	ahead, busy := s.ahead, s.busy(a.Mode)
	if a.Mode == distributed.Shared {
		ahead, busy = s.writersAhead, max(busy, s.room())
	}
	if ahead == 0 && busy == 0 {
		return true
	}
	if s.tightest > 0 {
		ahead = s.ahead
	}
	w := &a.Wire
	w.mu.Lock()
	if ahead < w.pace.ahead {
		w.pace.restart(time.Now(), ahead)
	}
	w.pace.ahead = ahead
	next := b.nextLook(w)
	w.mu.Unlock()
	if busy > 0 && busy < next { // the holder may have died
		next = busy + time.Millisecond
	}
	a.Stands(driver.Standing{Kind: driver.Queued, Sent: sent, Holder: s.holder(), Next: next})
	return false
}

// cut cuts what lasts too long, for nobody else may come by (rule D8), and looks again.
func (r *round) cut(a *attempt) {
	_ = r.ask(func(ctx context.Context) error {
		return r.b.change(ctx, a.Wire.name, func(s *state) {
			s.tidy()
			s.wake()
		})
	}) // the next look tries again
	r.b.lookAgain(a)
}

// take takes the lock for a waiter whose turn it seems to be. The transaction decides, for the look is old.
func (r *round) take(a *attempt) {
	var got answer
	sent := time.Now()
	err := r.ask(func(ctx context.Context) (err error) {
		var done bool
		if got, done, err = r.b.takeAtOnce(ctx, &a.Wire.claim); done || err != nil {
			return err
		}
		return r.b.change(ctx, a.Wire.name, func(s *state) {
			got = s.take(&a.Wire.claim)
			s.wake()
		})
	})
	got.sent = sent
	switch {
	case errors.Is(err, errNoRow), err == nil && got.outcome == vanished:
		a.Gone()
	case err == nil && got.outcome == granted: // to one that was left: the row orders this and its removal (rule D4)
		a.Stands(a.Wire.got(got))
		if got.contended || a.Mode == distributed.Shared {
			r.b.poke(a.Wire.name, a)
		}
	default:
		r.b.lookAgain(a)
	}
}

// lookAgain plans a look after one, or a transaction, that has brought nothing.
func (b *Backend) lookAgain(a *attempt) {
	a.Wire.mu.Lock()
	a.Wire.changing = false
	next := a.Wire.soon()
	a.Wire.mu.Unlock()
	a.LookIn(next)
}

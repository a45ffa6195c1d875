package sqllock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
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

// nextLook is when a waiter looks again that has seen that it is not its turn. The caller holds mu.
func (a *attempt) nextLook() time.Duration {
	if a.b.pushed() && time.Since(a.pace.since) > firstLook { // a notification comes; one look, for one that came too soon
		return min(distributed.HeartbeatInterval(a.ttl), pushedLook)
	}
	return a.soon()
}

// soon is when a waiter looks again that has seen nothing, or something that has changed meanwhile. The caller holds mu.
func (a *attempt) soon() time.Duration {
	longest := longestLook + longestLook*time.Duration(a.pace.ahead)/deepLooks
	return a.pace.next(time.Now(), min(distributed.HeartbeatInterval(a.ttl), longest))
}

// looks is the background task of a Backend: heartbeats, and looks at the locks that are waited for or held here. What falls due
// while it is at work shares the next round.
type looks struct {
	mu      sync.Mutex // guards all below
	due     map[*attempt]struct{}
	running bool
}

func (k *looks) add(b *Backend, some ...*attempt) {
	k.mu.Lock()
	if k.due == nil {
		k.due = make(map[*attempt]struct{})
	}
	for _, a := range some {
		k.due[a] = struct{}{}
	}
	start := !k.running && b.begin()
	k.running = k.running || start
	k.mu.Unlock()
	if start {
		go func() {
			defer b.tasks.Done()
			for k.next(b) {
			}
		}()
	}
}

func (k *looks) next(b *Backend) bool {
	k.mu.Lock()
	due := k.due
	k.due = nil
	if len(due) == 0 || b.ctx.Err() != nil {
		k.running = false
		k.mu.Unlock()
		return false
	}
	k.mu.Unlock()
	r := newRound(b, due)
	for _, a := range r.pushed {
		r.aside(a, r.take)
	}
	r.beat()
	r.lookAtPlaces()
	r.lookAtLeases()
	return true
}

// round is one round of looks.
type round struct {
	b       *Backend
	timeout time.Duration
	beats   []*attempt
	places  map[string]*attempt // by token
	pushed  []*attempt          // that were notified, so that there is no need to look
	leases  []*lease
}

func newRound(b *Backend, due map[*attempt]struct{}) *round {
	r := &round{b: b, places: make(map[string]*attempt), timeout: time.Minute}
	now := time.Now()
	for a := range due {
		a.mu.Lock()
		state, l := a.state, a.lease
		beat := state == waiting && !now.Before(a.beatDue)
		pushed, changing := a.notified, a.changing
		a.notified = false
		a.mu.Unlock()
		switch {
		case state == waiting && changing: // which plans the next look
		case state == waiting && pushed:
			r.pushed = append(r.pushed, a)
		case state == waiting:
			r.places[a.token] = a
		case state == leased && !l.ending():
			r.leases = append(r.leases, l)
		default:
			continue
		}
		if beat {
			r.beats = append(r.beats, a)
		}
		r.timeout = min(r.timeout, distributed.ClaimWindow(a.ttl))
	}
	r.timeout = max(r.timeout, shortestLookTime)
	if len(r.beats) > 0 {
		r.gatherBeats(now)
	}
	return r
}

// gatherBeats adds the places whose heartbeat is due soon, so that all share a statement from then on.
func (r *round) gatherBeats(now time.Time) {
	for _, a := range r.b.all() {
		a.mu.Lock()
		ahead := a.beatDue.Sub(now)
		if a.state == waiting && ahead > 0 && ahead < distributed.HeartbeatInterval(a.ttl)/3 {
			r.beats = append(r.beats, a)
		}
		a.mu.Unlock()
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
			tokens[i] = a.token
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
			a.mu.Lock()
			a.beatDue = sent.Add(distributed.HeartbeatInterval(a.ttl))
			a.mu.Unlock()
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
		err := r.ask(func(ctx context.Context) (err error) {
			seen, err = r.b.look(ctx, some)
			return err
		})
		for _, token := range some {
			a := r.places[token]
			s, found := seen[token]
			switch {
			case err != nil:
				a.lookAgain()
			case found && s.overlong:
				r.aside(a, r.cut)
			case !found || s.holds || a.mayTake(&s):
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
func (a *attempt) mayTake(s *sight) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != waiting {
		return false
	}
	a.holding = s.holder()
	ahead, busy := s.ahead, s.busy(a.mode)
	if a.mode == distributed.Shared {
		ahead, busy = s.writersAhead, max(busy, s.room())
	}
	if ahead == 0 && busy == 0 {
		return true
	}
	if s.tightest > 0 {
		ahead = s.ahead
	}
	if ahead < a.pace.ahead {
		a.pace.restart(time.Now(), ahead)
	}
	a.pace.ahead = ahead
	next := a.nextLook()
	if busy > 0 && busy < next { // the holder may have died
		next = busy + time.Millisecond
	}
	a.plan(next)
	return false
}

// cut cuts what lasts too long, for nobody else may come by (rule D8), and looks again.
func (r *round) cut(a *attempt) {
	_ = r.ask(func(ctx context.Context) error {
		return r.b.change(ctx, a.name, func(s *state) {
			s.tidy()
			s.wake()
		})
	}) // the next look tries again
	a.lookAgain()
}

// take takes the lock for a waiter whose turn it seems to be. The transaction decides, for the look is old.
func (r *round) take(a *attempt) {
	var got answer
	sent := time.Now()
	err := r.ask(func(ctx context.Context) (err error) {
		var done bool
		if got, done, err = r.b.takeAtOnce(ctx, &a.claim); done || err != nil {
			return err
		}
		return r.b.change(ctx, a.name, func(s *state) {
			got = s.take(&a.claim)
			s.wake()
		})
	})
	got.sent = sent
	switch {
	case errors.Is(err, errNoRow), err == nil && got.outcome == vanished:
		a.lose()
	case err == nil && got.outcome == granted:
		a.deliver(got)
	default:
		a.lookAgain()
	}
}

// lookAgain plans a look after one, or a transaction, that has brought nothing.
func (a *attempt) lookAgain() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changing = false
	if a.state == waiting {
		a.plan(a.soon())
	}
}

// deliver sends the grant to the receiver. If the place was left meanwhile, what was taken is removed, once more perhaps.
func (a *attempt) deliver(got answer) {
	a.mu.Lock()
	taken := a.state == waiting
	late := !taken || distributed.Over(time.Now(), distributed.Validity(got.sent, distributed.ClaimWindow(a.ttl)))
	if taken && !late {
		a.granted <- a.start(got) // the one that the channel holds
	}
	a.mu.Unlock()
	if late {
		a.b.removals.add(a.b, a.removal())
		a.lose()
	}
	if got.contended || a.mode == distributed.Shared {
		a.b.poke(a.name, a)
	}
}

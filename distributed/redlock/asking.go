package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/keyless"
)

// enter asks all servers at once. prev may be nil.
func (a *bid) enter(prev *bid) {
	token := ""
	if prev != nil {
		token = prev.token
		prev.adopt()
	}
	c := a.call(enterScript, modeLetter(a.mode), 1, a.asked, flag(a.noWait), token)
	a.mu.Lock()
	a.started = time.Now()
	for i := range a.seats {
		a.seats[i].ask(a.started)
	}
	a.mu.Unlock()
	a.toAll(c, func(k *ask) { a.entered(k, prev) })
}

// entered takes the answer of one server to enter.
func (a *bid) entered(k *ask, prev *bid) {
	s := standing{}
	if k.Err == nil {
		if s = readEnter(k.Reply); s.kind == 0 {
			k.Err = conn.Refusal(fmt.Errorf("the server answers %q", k.Reply))
		}
	}
	if prev != nil {
		if k.Err != nil {
			prev.leave(k.node) // after all; first, so that something is under way
		}
		prev.parted(k.node.index, s.found, true, k.Err)
	}
	a.answered(k, s)
}

// answered takes what a server says about the bid, or that it says nothing.
func (a *bid) answered(k *ask, s standing) {
	if k.Err == nil {
		a.in.learn(s.longest)
		s.age = a.in.trust(k.node.index, k.sent, s.age)
	}
	a.mu.Lock()
	seat, then := &a.seats[k.node.index], nothing
	if k.Err != nil {
		seat.failed(k.Err)
	} else {
		seat.told(s, time.Now())
	}
	switch {
	case a.phase == asking:
		a.tell()
	case a.phase == waiting && seat.void:
		then = a.restart()
	case a.phase == waiting:
		then = a.consider((*attempt).Stands)
	case a.phase == ended && (s.kind == 'v' || s.kind == 'w'): // it came after it was told to leave, and perhaps after that was done
		then = func() { a.leave(k.node) }
	}
	a.mu.Unlock()
	then()
}

func nothing() {}

// tell has await look what is known by now, if that can be enough. The caller holds mu.
func (a *bid) tell() {
	if t := a.tally(); t.votes+t.waits >= a.b.quorum || t.judge() != pending {
		select {
		case a.news <- struct{}{}:
		default:
		}
	}
}

// await returns what the servers have decided of the round that enters. It ends with ctx or Close, but a decision that is there by then wins.
func (a *bid) await(ctx context.Context) (s driver.Standing, err error) {
	var slow <-chan time.Time // a majority has answered, and waits for the others until then
	for closed := false; ; {
		select {
		case <-a.news:
		case <-slow:
			closed = true
		case <-ctx.Done():
			err = ctx.Err()
		case <-a.b.shut.Done():
			err = distributed.ErrClosed
		}
		a.mu.Lock()
		t := a.tally()
		t.closed = closed
		again, then := false, nothing
		switch v := t.judge(); {
		case v == granted:
			s, then, err = a.win(), a.reported(nil, nothing), nil
		case v == refused:
			s, then, err = a.refused()
		case err != nil:
			then, err = a.interrupted(err, t)
		case v == unavailable:
			then, err = a.askAgain()
			again = err == nil
		default:
			if again = true; slow == nil && !a.noWait && t.votes+t.waits >= a.b.quorum {
				slow = time.After(grace(a.ttl, a.b.roundTrip()))
			}
		}
		if err != nil {
			a.phase = ended
		}
		a.mu.Unlock()
		if then(); !again {
			return s, err
		}
	}
}

// reported tells observers of the round, before what else is to be done. The caller holds mu.
func (a *bid) reported(err error, then func()) func() {
	started := a.started
	return func() {
		a.b.exchanged("enter", started, err)
		then()
	}
}

// interrupted is the error of a caller whose time is over, or who has gone. The caller holds mu.
func (a *bid) interrupted(why error, t tally) (then func(), err error) {
	switch {
	case errors.Is(why, distributed.ErrClosed):
		return nothing, why
	case errors.Is(why, context.DeadlineExceeded) && t.votes+t.waits < a.b.quorum: // the servers did not answer in time
		then = a.reported(why, nothing)
		if a.why != nil {
			why = conn.Expired(why, a.why)
		}
		return then, distributed.Unavailable("redlock: enter", why)
	}
	return nothing, keyless.Errorf("redlock: enter: %w", why)
}

// refused takes that a majority does not vote for the bid: it waits, or ends. The caller holds mu.
func (a *bid) refused() (s driver.Standing, then func(), err error) {
	then = a.reported(nil, nothing)
	if !a.noWait {
		a.phase = waiting
		return a.queued(a.tally()), then, nil
	}
	if err := a.young(); err != nil {
		return s, then, a.b.unavailable("enter", err)
	}
	a.phase = ended
	return driver.Standing{Kind: driver.Refused, Holder: a.holder()}, then, nil
}

// askAgain asks the servers again that have failed, after a pause, as long as a vote would have half of its window left: most
// failures are a busy server or a lost connection. It returns an error if a repeat does not help. The caller holds mu.
func (a *bid) askAgain() (then func(), err error) {
	all := make([]error, len(a.seats))
	for i := range all {
		all[i] = a.seats[i].err
	}
	err = a.b.failures(all)
	pause := jittered(doubled(firstBackoff/2, a.repeats, longestBackoff))
	if conn.Classify(err) == conn.Permanent || errors.Is(err, distributed.ErrRefused) || errors.Is(err, distributed.ErrClosed) ||
		time.Since(a.started)+pause > a.window()/2 {
		return a.reported(err, nothing), a.b.unavailable("enter", err)
	}
	a.repeats++
	a.why = err
	var asks []*ask
	for i, n := range a.b.nodes {
		if s := &a.seats[i]; s.err != nil {
			s.err = nil
			c := a.call(enterScript, modeLetter(a.mode), s.ask(time.Now()), a.asked, flag(a.noWait), "")
			asks = append(asks, a.question(n, c, func(k *ask) { a.entered(k, nil) }))
		}
	}
	return a.reported(err, func() { time.AfterFunc(pause, func() { sendAll(asks) }) }), nil
}

// tally counts the seats. The caller holds mu.
func (a *bid) tally() tally {
	t := tally{n: len(a.seats)}
	now, longest := time.Now(), a.longest()
	for i := range a.seats {
		s := &a.seats[i]
		switch {
		case s.counts(now, a.ttl, longest):
			t.votes++
		case s.standing.kind != 0:
			t.waits++
		case s.err != nil:
			t.errs++
		}
		t.busy, t.given, t.young = t.busy+flag(s.busy), t.given+flag(s.given()), t.young+flag(s.young(now, a.ttl, longest))
	}
	return t
}

// young returns an error if a majority votes for us and too many of these servers do not count yet (rule Q5).
func (a *bid) young() error {
	votes, rest := 0, time.Duration(0)
	now, longest := time.Now(), a.longest()
	for i := range a.seats {
		if s := &a.seats[i]; s.standing.kind == 'v' {
			votes++
			rest = max(rest, s.mature(longest).Sub(now))
		}
	}
	if votes < a.b.quorum {
		return nil
	}
	if rest <= 0 {
		return keyless.Errorf("answers take longer than the claim window")
	}
	const why = "servers were started or flushed, or their clocks set, less than the longest lease TTL ago, and count in %v"
	return conn.Refusal(keyless.Errorf(why, rest.Round(time.Millisecond)))
}

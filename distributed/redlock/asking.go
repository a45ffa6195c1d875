package redlock

import (
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
	prev.enterReplied(k.node, s.found, k.Err)
	a.answered(k, s)
}

// answered takes what a server says about the attempt, or that it says nothing.
func (a *bid) answered(k *ask, s standing) {
	if k.Err == nil {
		a.in.learn(s.longest)
		s.age = a.in.trust(k.node.index, k.sent, s.age)
	}
	a.mu.Lock()
	seat := &a.seats[k.node.index]
	if k.Err != nil {
		seat.failed(k.Err)
	} else {
		seat.told(s, time.Now())
	}
	over := a.phase == ended
	then := nothing
	if a.phase == waiting && seat.void {
		then = a.restart()
	} else {
		then = a.consider((*attempt).Stands)
	}
	a.mu.Unlock()
	if over && k.Err == nil && (s.kind == 'v' || s.kind == 'w') { // it came after it was told to leave, and perhaps after that was done
		a.leave(k.node)
	}
	then()
}

func nothing() {}

// consider decides what follows from the seats, and returns what is to be done once mu is free. plan takes when to look again. The caller
// holds mu.
func (a *bid) consider(plan func(*attempt, driver.Standing)) (then func()) {
	switch a.phase {
	case asking:
		return a.considerAsking()
	case waiting:
		return a.considerWaiting(plan)
	}
	return nothing
}

func (a *bid) considerAsking() func() {
	t := a.tally()
	switch t.judge() {
	case granted:
		a.b.exchanged("enter", a.started, nil)
		return a.win()
	case unavailable:
		err := a.b.failures(a.errs())
		a.b.exchanged("enter", a.started, err)
		if again := a.askAgain(err); again != nil {
			return again
		}
		return a.fail(a.b.unavailable("enter", err))
	case refused:
		a.b.exchanged("enter", a.started, nil)
		return a.refused()
	}
	if !a.lingers && !a.noWait && t.votes+t.waits >= a.b.quorum {
		a.lingers = true
		time.AfterFunc(grace(a.ttl, a.b.roundTrip()), a.closeRound)
	}
	return nothing
}

// refused takes that a majority does not vote for the bid: it waits, or has the votes of the others released. The caller holds mu.
func (a *bid) refused() func() {
	if !a.noWait {
		a.phase = waiting
		a.settle(driver.Standing{Kind: driver.Queued, Sent: a.started}, nil)
		return a.considerWaiting((*attempt).Stands)
	}
	if err := a.young(); err != nil {
		return a.fail(a.b.unavailable("enter", err))
	}
	a.phase = ended
	a.settle(driver.Standing{Kind: driver.Refused, Holder: a.holder()}, nil)
	return func() { a.depart() }
}

// askAgain asks the servers again that have failed, after a pause, as long as a vote would have half of its window left: most
// failures are a busy server or a lost connection. It returns nil if a repeat does not help. The caller holds mu.
func (a *bid) askAgain(err error) func() {
	pause := jittered(doubled(firstBackoff/2, a.repeats, longestBackoff))
	if conn.Classify(err) == conn.Permanent || errors.Is(err, distributed.ErrRefused) || errors.Is(err, distributed.ErrClosed) ||
		time.Since(a.started)+pause > a.window()/2 {
		return nil
	}
	a.repeats++
	a.why = err
	var asks []*ask
	for i := range a.seats {
		if s := &a.seats[i]; s.err != nil {
			s.err = nil
			c := a.call(enterScript, modeLetter(a.mode), s.ask(time.Now()), a.asked, flag(a.noWait), "")
			k := a.question(c, func(k *ask) { a.entered(k, nil) })
			k.node = a.b.nodes[i]
			asks = append(asks, k)
		}
	}
	return func() {
		time.AfterFunc(pause, func() {
			for _, k := range asks {
				k.node.send(k)
			}
		})
	}
}

// closeRound ends the wait for slow servers: a majority has answered.
func (a *bid) closeRound() {
	a.mu.Lock()
	a.closed = true
	then := nothing
	if a.phase == asking {
		then = a.considerAsking()
	}
	a.mu.Unlock()
	then()
}

// tally counts the seats. The caller holds mu.
func (a *bid) tally() tally {
	t := tally{n: len(a.seats), closed: a.closed}
	now, longest := time.Now(), a.longest()
	for i := range a.seats {
		switch s := &a.seats[i]; {
		case s.counts(now, a.ttl, longest):
			t.votes++
		case s.standing.kind != 0:
			t.waits++
		case s.err != nil:
			t.errs++
		}
	}
	return t
}

func (a *bid) errs() []error {
	all := make([]error, len(a.seats))
	for i := range a.seats {
		all[i] = a.seats[i].err
	}
	return all
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

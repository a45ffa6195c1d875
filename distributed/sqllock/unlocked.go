package sqllock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// A process that stands still in the middle of a transaction keeps the row of a lock, until the server notices. Whoever renews or
// releases that lock waits. Other locks that share the statement do not: rows that are locked are left out (rule D10).

const (
	// unlockedTries is how often rows that are locked are tried: most are so for a moment only.
	unlockedTries = 3
	// unlockedPause is the longest time between.
	unlockedPause = 20 * time.Millisecond
)

// renewUnlocked renews those whose rows nobody has locked. Those that are gone are found by a look. Of the rest nothing is known, and
// the Keeper tries again.
func (b *Backend) renewUnlocked(ctx context.Context, some []*lease) {
	rest := some
	for try := 0; len(rest) > 0; try++ {
		if try == unlockedTries || try > 0 && !sleep(ctx, rand.N(unlockedPause)) {
			break
		}
		var renewed map[string]bool
		sent := time.Now()
		err := retrying(ctx, func() (err error) {
			sent = time.Now()
			renewed, err = b.renewFree(ctx, rest)
			return err
		})
		b.observe(sent, err)
		if err != nil {
			return
		}
		rest = slices.DeleteFunc(slices.Clone(rest), func(l *lease) bool {
			contended, is := renewed[l.a.token]
			if is && l.renewed(sent) {
				l.SetContended(contended)
			}
			return is
		})
		if len(rest) > 0 && b.endGone(ctx, rest) != nil {
			return
		}
	}
}

// renewFree returns the tokens it has renewed, and whether somebody waits for what they have.
func (b *Backend) renewFree(ctx context.Context, some []*lease) (renewed map[string]bool, err error) {
	seat := some[0].seat
	names, tokens := namesOf(some)
	err = b.inTransaction(ctx, func(q querier) error {
		text, args := b.st().list(b.st().unlocked, names, tokens)
		if seat {
			text, args = b.st().list(b.st().unlockedSeats, tokens)
		}
		if renewed, err = b.heldBy(ctx, q, text, args); err != nil || len(renewed) == 0 {
			return err
		}
		names, tokens := namesOf(slices.DeleteFunc(slices.Clone(some), func(l *lease) bool {
			_, is := renewed[l.a.token]
			return !is
		}))
		text, args = b.st().list(b.st().renew, names, tokens)
		if seat {
			text, args = b.st().list(b.st().renewMembers, tokens)
		}
		_, err = q.ExecContext(ctx, text, args...)
		return err
	})
	return renewed, err
}

// endGone ends those that are not in the database any more.
func (b *Backend) endGone(ctx context.Context, some []*lease) error {
	names, tokens := namesOf(some)
	text, args := b.st().list(b.st().owners, names)
	if some[0].seat {
		text, args = b.st().list(b.st().seats, tokens)
	}
	held, err := b.held(ctx, text, args)
	for _, l := range some {
		if _, is := held[l.a.token]; err == nil && !is {
			l.End()
		}
	}
	return err
}

// errRowLocked says that a release waits for somebody else's transaction.
var errRowLocked = errors.New("sqllock: the row is locked")

// releaseUnlocked releases owners whose rows nobody has locked, and returns their names. It notes which of the rest are stuck; the
// others are gone.
func (b *Backend) releaseUnlocked(ctx context.Context, some []*removal) (map[string]bool, error) {
	found := make(map[string]bool, len(some))
	var names, tokens, missing, released []string
	for _, one := range some {
		names, tokens = append(names, one.name), append(tokens, one.token)
	}
	err := b.inTransaction(ctx, func(q querier) error {
		text, args := b.st().list(b.st().unlocked, names, tokens)
		free, err := b.heldBy(ctx, q, text, args)
		if err != nil {
			return err
		}
		var unlocked []*removal
		for _, one := range some {
			if _, is := free[one.token]; is {
				unlocked = append(unlocked, one)
				released = append(released, one.name)
				found[one.name] = true
			} else {
				missing = append(missing, one.name)
			}
		}
		if len(unlocked) == 0 {
			return nil
		}
		text, args = b.releaseBatch(unlocked)
		_, err = q.ExecContext(ctx, text, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if b.set.notifier != nil && len(released) > 0 {
		b.notifyHeads(ctx, released)
	}
	return found, b.noteStuck(ctx, some, found, missing)
}

// noteStuck finds out which of those that were not released still have an owner.
func (b *Backend) noteStuck(ctx context.Context, some []*removal, released map[string]bool, missing []string) error {
	held := make(map[string]bool)
	if len(missing) > 0 {
		text, args := b.st().list(b.st().owners, missing)
		var err error
		if held, err = b.held(ctx, text, args); err != nil {
			return err
		}
	}
	for _, one := range some {
		_, is := held[one.token]
		one.stuck = is && !released[one.name]
	}
	return nil
}

// takePatience is how long a round waits for a transaction of one of its places.
const takePatience = 100 * time.Millisecond

// aside runs a transaction of a place. If it takes long, because somebody stands still who has locked the row, it goes on aside, in
// place of a call, and the others' looks and heartbeats do not wait for it (rule D10).
func (r *round) aside(a *attempt, change func(*attempt)) {
	b := r.b
	if !a.startChange() || !b.begin() {
		return
	}
	done, moved := make(chan struct{}), make(chan bool, 1)
	go func() {
		defer b.tasks.Done()
		change(a)
		close(done)
		if <-moved {
			<-b.gate
		}
	}()
	patience := time.NewTimer(takePatience)
	defer patience.Stop()
	select {
	case <-done:
		moved <- false
		return
	case <-patience.C:
	}
	select {
	case <-done:
		moved <- false
	case b.gate <- struct{}{}:
		moved <- true
	}
}

// startChange reports false if a transaction of the place is under way.
func (a *attempt) startChange() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.changing
	a.changing = true
	return !was
}

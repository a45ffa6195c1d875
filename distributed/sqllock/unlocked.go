package sqllock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// A process that stands still in the middle of a transaction keeps the row of a lock, until the server notices. Whoever renews or
// releases that lock waits. Other locks that share the statement do not: rows that are locked are left out (rule D10). A statement is
// a transaction of its own, so whoever stands still between two keeps nothing.

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
		var renewed map[string]heldRow
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
			row, is := renewed[l.a.token]
			if is && l.renewed(sent) {
				l.SetContended(row.queued > 0)
			}
			return is
		})
		if len(rest) > 0 && b.endGone(ctx, rest) != nil {
			return
		}
	}
}

// renewFree returns the tokens it has renewed.
func (b *Backend) renewFree(ctx context.Context, some []*lease) (map[string]heldRow, error) {
	names, tokens := namesOf(some)
	text, args := b.st().list(b.st().renewFree, names, tokens)
	if some[0].seat {
		text, args = b.st().list(b.st().renewFreeSeats, tokens)
	}
	if b.dialect.hasReturning() {
		return b.held(ctx, text, args)
	}
	return b.countFree(ctx, text, args, func() (map[string]heldRow, error) { return b.heldOf(ctx, some[0].seat, names, tokens) },
		func(before, after heldRow, there bool) bool { return there && after.expires != before.expires })
}

// countFree carries out a statement of ofUnlocked without RETURNING. It returns the tokens whose rows it has changed: all that were there,
// if it has changed as many; else those that look changed now. Nobody else changes them so: a token is this process's, which
// has one such statement for it under way. One of before, whose answer was lost, may have come in between: it was carried out after the first
// look, from whose sending the answer counts.
func (b *Backend) countFree(ctx context.Context, text string, args []any, look func() (map[string]heldRow, error),
	changed func(before, after heldRow, there bool) bool) (map[string]heldRow, error) {
	before, err := look()
	if err != nil || len(before) == 0 {
		return nil, err
	}
	result, err := b.db.ExecContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	if n, err := result.RowsAffected(); err != nil || int(n) == len(before) {
		return before, err
	}
	after, err := look()
	for token, row := range before {
		if now, there := after[token]; !changed(row, now, there) {
			delete(before, token)
		}
	}
	return before, err
}

// heldOf returns what these tokens have: locks, or seats beside owners.
func (b *Backend) heldOf(ctx context.Context, seats bool, names, tokens []string) (map[string]heldRow, error) {
	text, args := b.st().list(b.st().owners, names)
	if seats {
		text, args = b.st().list(b.st().seats, tokens)
	}
	all, err := b.held(ctx, text, args)
	held := make(map[string]heldRow, len(tokens))
	for _, token := range tokens {
		if row, is := all[token]; is {
			held[token] = row
		}
	}
	return held, err
}

// endGone ends those that are not in the database any more.
func (b *Backend) endGone(ctx context.Context, some []*lease) error {
	names, tokens := namesOf(some)
	held, err := b.heldOf(ctx, some[0].seat, names, tokens)
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
	var names, tokens, released []string
	for _, one := range some {
		names, tokens = append(names, one.name), append(tokens, one.token)
	}
	text, args := b.releaseBatch(some, true)
	look := func() (map[string]heldRow, error) { return b.heldOf(ctx, false, names, tokens) }
	var free map[string]heldRow
	var err error
	if b.dialect.hasReturning() {
		free, err = b.held(ctx, text, args)
	} else {
		free, err = b.countFree(ctx, text, args, look, func(_, _ heldRow, there bool) bool { return !there })
	}
	if err != nil {
		return nil, err
	}
	var left map[string]heldRow
	if len(free) < len(some) {
		if left, err = look(); err != nil {
			return nil, err
		}
	}
	found := make(map[string]bool, len(some))
	for _, one := range some {
		_, found[one.name] = free[one.token]
		_, one.stuck = left[one.token]
		if found[one.name] {
			released = append(released, one.name)
		}
	}
	if len(released) > 0 && b.notifies() {
		b.notifyHeads(ctx, released)
	}
	return found, nil
}

// takePatience is how long a round waits for a transaction of one of its places.
const takePatience = 100 * time.Millisecond

// aside runs a transaction of a place. If it takes long, because somebody stands still who has locked the row, it goes on aside, in
// place of a call, and the others' looks and heartbeats do not wait for it, nor another place of its lock for the row (rule D10).
func (r *round) aside(a *attempt, change func(*attempt)) {
	b := r.b
	if b.asides.has(a.name) { // another one of this lock waits for the row
		a.lookAgain()
		return
	}
	done, moved := make(chan struct{}), make(chan bool, 1)
	if !a.startChange() || !b.begin() {
		return
	}
	go func() {
		defer b.tasks.Done()
		change(a)
		close(done)
		if <-moved {
			<-b.gate
			b.asides.forget(a.name)
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
		b.asides.note(a.name, nil)
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

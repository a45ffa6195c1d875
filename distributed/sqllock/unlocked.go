package sqllock

import (
	"context"
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
func (b *Backend) renewUnlocked(ctx context.Context, some []*attempt) {
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
			unrenewed(rest, err)
			return
		}
		rest = slices.DeleteFunc(slices.Clone(rest), func(a *attempt) bool {
			row, is := renewed[a.Wire.token]
			if is {
				b.renewed(a, sent, row.queued > 0)
			}
			return is
		})
		if len(rest) == 0 {
			return
		}
		if err := b.endGone(ctx, rest); err != nil {
			unrenewed(rest, err)
			return
		}
	}
	unrenewed(rest, errRowLocked)
}

// renewFree returns the tokens it has renewed.
func (b *Backend) renewFree(ctx context.Context, some []*attempt) (map[string]heldRow, error) {
	names, tokens := namesOf(some)
	text, args := b.st().list(b.st().renewFree, names, tokens)
	if some[0].Wire.seat {
		text, args = b.st().list(b.st().renewFreeSeats, tokens)
	}
	if b.is.returning {
		return b.held(ctx, text, args)
	}
	return b.countFree(ctx, text, args, func() (map[string]heldRow, error) { return b.heldOf(ctx, some[0].Wire.seat, names, tokens) },
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
func (b *Backend) endGone(ctx context.Context, some []*attempt) error {
	names, tokens := namesOf(some)
	held, err := b.heldOf(ctx, some[0].Wire.seat, names, tokens)
	for _, a := range some {
		if _, is := held[a.Wire.token]; err == nil && !is {
			a.Gone()
		}
	}
	return err
}

// releaseUnlocked releases owners whose rows nobody has locked, and returns their names. It notes which of the rest are stuck; the
// others are gone.
func (b *Backend) releaseUnlocked(ctx context.Context, some []*attempt) (map[string]bool, error) {
	names, tokens := namesOf(some)
	text, args := b.releaseBatch(some, true)
	look := func() (map[string]heldRow, error) { return b.heldOf(ctx, false, names, tokens) }
	var free map[string]heldRow
	var err error
	if b.is.returning {
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
	var released []string
	for _, a := range some {
		w := &a.Wire
		_, found[w.name] = free[w.token]
		if _, w.stuck = left[w.token]; found[w.name] {
			released = append(released, w.name)
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
	if b.asides.has(a.Wire.name) { // another one of this lock waits for the row
		b.lookAgain(a)
		return
	}
	done, moved := make(chan struct{}), make(chan bool, 1)
	if !a.Wire.startChange() || !b.client.Go(func() {
		change(a)
		close(done)
		if <-moved {
			<-b.gates.all
			b.asides.forget(a.Wire.name)
		}
	}) {
		return
	}
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
	case b.gates.all <- struct{}{}:
		b.asides.note(a.Wire.name, nil)
		moved <- true
	}
}

// startChange reports false if a transaction of the place is under way.
func (w *ours) startChange() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.changing
	w.changing = true
	return !was
}

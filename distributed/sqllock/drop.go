package sqllock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/keyless"
)

const (
	// maxRemoving is how many goroutines, and so connections, remove: few, so that many removals gather.
	maxRemoving = 2
	// maxBatch is how many releases share a statement. Their rows are locked together, and each has its own fences.
	maxBatch = 100
	// removalPause is the time before a removal that was not answered is repeated, with jitter.
	removalPause = 50 * time.Millisecond
	// removalTime bounds a statement.
	removalTime = 2 * time.Second
	// firstRemovalTime bounds the first try of one that has a transaction of its own, for others wait behind it; each further
	// one has twice as long.
	firstRemovalTime = removalTime / 4
)

// removing are the locks that a Drop has a transaction for. Another one would wait for the row, and keep a connection and all that it is to
// remove besides; so it waits here, and not for long (rule D10).
type removing struct {
	mu   sync.Mutex
	rows map[string]chan struct{} // guarded by mu; each is closed when the transaction has ended
}

// begin returns what is to be called after the transaction; nil: it is another's.
func (r *removing) begin(ctx context.Context, name string, patience time.Duration) (end func()) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		r.mu.Lock()
		ended, busy := r.rows[name]
		if !busy {
			ended = make(chan struct{})
			r.rows[name] = ended
		}
		r.mu.Unlock()
		if !busy {
			return func() {
				r.mu.Lock()
				delete(r.rows, name)
				r.mu.Unlock()
				close(ended)
			}
		}
		select {
		case <-ended:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// Drop implements driver.Driver: the owners in one statement (group commit) that has one of each lock, and then the others of each lock
// in a transaction, those last that were tried before.
func (d half) Drop(ctx context.Context, some []*attempt) {
	if ctx == d.ctx {
		ctx = d.asking // Close does not break off what it would have to repeat
	}
	var owners []*attempt
	var rows [][]*attempt
	at := map[string]int{}
	for _, a := range some {
		w := &a.Wire
		switch i, is := at[w.name]; {
		case a.Lease() != nil && !w.seat:
			owners = append(owners, a)
		case !w.unknown: // no request was sent, or it was refused
			a.Dropped(driver.Missing)
		case is:
			rows[i] = append(rows[i], a)
		default:
			at[w.name] = len(rows)
			rows = append(rows, []*attempt{a})
		}
	}
	for len(owners) > 0 {
		var some []*attempt
		some, owners = oneOfEach(owners)
		d.removeOwners(ctx, some)
	}
	slices.SortStableFunc(rows, func(x, y []*attempt) int { return tries(x) - tries(y) })
	for _, row := range rows {
		d.removeRow(ctx, row[0].Wire.name, row)
	}
}

// oneOfEach returns the first of each lock, and the rest. A statement and its answer know a lock by its name. With two of one lock, as when
// the answer to the release of the first was lost and the second has taken the lock since, the first would give back fences that the second
// has used, and one have the other's answer.
func oneOfEach(owners []*attempt) (some, rest []*attempt) {
	if len(owners) == 1 {
		return owners, nil
	}
	seen := make(map[string]bool, len(owners))
	for _, a := range owners {
		if seen[a.Wire.name] {
			rest = append(rest, a)
			continue
		}
		seen[a.Wire.name] = true
		some = append(some, a)
	}
	return some, rest
}

func tries(some []*attempt) (most int) {
	for _, a := range some {
		most = max(most, a.Wire.tries)
	}
	return most
}

// removeRow removes what takes a transaction, of one lock.
func (b *Backend) removeRow(ctx context.Context, name string, some []*attempt) {
	end := b.removing.begin(ctx, name, takePatience)
	if end == nil {
		return // it is dropped again
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, min(removalTime, firstRemovalTime<<min(tries(some), 2)))
	defer cancel()
	start, held := time.Now(), make([]bool, len(some))
	err := b.change(ctx, name, func(s *state) {
		for i, a := range some {
			held[i] = s.remove(handleOf(a)) || held[i] // found by a try whose answer was lost
		}
		s.tidy()
		s.wake()
	})
	b.observe(start, err)
	for i, a := range some {
		a.Wire.tries++
		b.removed(a, held[i], ignoring(err, errNoRow))
	}
}

func (b *Backend) removeOwners(ctx context.Context, owners []*attempt) {
	ctx, cancel := context.WithTimeout(ctx, removalTime)
	defer cancel()
	start := time.Now()
	found, err := b.releaseOrSkip(ctx, owners)
	b.observe(start, err)
	for _, a := range owners {
		if err == nil && a.Wire.stuck {
			b.removed(a, false, errRowLocked)
			continue
		}
		b.removed(a, found[a.Wire.name], err)
	}
}

// releaseOrSkip releases, but for those whose rows others have locked and keep.
func (b *Backend) releaseOrSkip(ctx context.Context, owners []*attempt) (found map[string]bool, err error) {
	skip := b.is.goesOn && len(owners) > 1 || // for the same reason as renewals
		slices.ContainsFunc(owners, func(a *attempt) bool { return a.Wire.stuck })
	if !skip {
		half, cancel := halfOf(ctx)
		found, err = b.repeatRelease(half, owners, b.release)
		cancel()
		skip = err != nil && ctx.Err() == nil && len(owners) > 1 && effectOf(err) <= collided
	}
	if skip {
		found, err = b.repeatRelease(ctx, owners, b.releaseUnlocked)
	}
	return found, err
}

func (b *Backend) repeatRelease(
	ctx context.Context, owners []*attempt, release func(context.Context, []*attempt) (map[string]bool, error),
) (found map[string]bool, err error) {
	err = retrying(ctx, func() (err error) {
		found, err = release(ctx, owners)
		if err != nil && effectOf(err) == lost {
			for _, a := range owners {
				a.Dropped(driver.Unknown)
			}
		}
		return err
	})
	return found, err
}

// removed takes the answer, or none.
func (b *Backend) removed(a *attempt, held bool, err error) {
	switch {
	case err != nil:
		a.Unanswered(explain("release", err))
		return
	case held:
		a.Dropped(driver.Removed)
	default:
		a.Dropped(driver.Missing)
	}
	b.poke(a.Wire.name, a)
}

// release releases owners and returns the names of those that were: on MySQL one, or see releaseUnlocked. SQLite has several in a statement.
func (b *Backend) release(ctx context.Context, some []*attempt) (map[string]bool, error) {
	if b.is.atOnce {
		return b.releaseAtOnce(ctx, some)
	}
	found := make(map[string]bool, len(some))
	if len(some) == 1 {
		name, h := some[0].Wire.name, handleOf(some[0])
		result, err := keptQuerier{b, &b.releasing}.ExecContext(ctx, b.st().release.text, b.st().release.args(name, h.token, h.last, h.drawn)...)
		if err != nil {
			return nil, err
		}
		n, err := result.RowsAffected()
		found[name] = n > 0
		return found, err
	}
	note := func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		found[name] = true
		return err
	}
	text, args := b.releaseBatch(some, false)
	return found, b.rows(ctx, b.db, text+" RETURNING name", args, note)
}

// releaseBatch is the release of several; unlocked: of those that nobody else has locked, which returns their tokens.
func (b *Backend) releaseBatch(some []*attempt, unlocked bool) (string, []any) {
	var cases, names, tokens []string
	var args []any
	for _, a := range some {
		h, n := handleOf(a), len(args)
		cases = append(cases, fmt.Sprintf(" WHEN name = $%d AND fence = $%d THEN $%d", n+1, n+3, n+4))
		names, tokens = append(names, fmt.Sprintf("$%d", n+1)), append(tokens, fmt.Sprintf("$%d", n+2))
		args = append(args, a.Wire.name, h.token, h.last, h.drawn)
	}
	text := releaseMany
	if unlocked {
		text = b.dialect.ofUnlocked(releasable, "{locks}", "name", releasedMany, "u.token, queued, expires_at")
	}
	text = strings.Replace(b.st().text(text), "{cases}", strings.Join(cases, ""), 1)
	text = strings.Replace(text, "{names}", strings.Join(names, ","), 1)
	text = strings.Replace(text, "{tokens}", strings.Join(tokens, ","), 1)
	q := b.dialect.compile(text)
	return q.text, q.args(args...)
}

// errRowLocked says that a release, or a renewal, waits for somebody else's transaction.
var errRowLocked = keyless.Errorf("another transaction has locked the row of this lock")

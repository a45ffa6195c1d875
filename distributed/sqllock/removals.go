package sqllock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
)

// removals takes tokens out of the database: of released leases, of places that were left, of requests whose callers have gone. What
// gathers while statements are under way shares the next one (group commit). One that was not answered is repeated until it is, or
// until the lease has expired by itself.
type removals struct {
	mu      sync.Mutex // guards all below
	queue   []*removal
	workers int
	rows    map[string]bool // of locks that a worker has a transaction for: another one would wait for it (rule D10)
}

type removal struct {
	name string
	handle
	any   bool        // it is not known what the token has, if anything
	until time.Time   // then it has expired
	claim func() bool // asked before it is sent: false if it is not to be; nil: it is
	tried bool        // an earlier try may have done it, so that a missing token is no loss
	stuck bool        // its row was locked by somebody who stands still
	tries int
	done  func(held bool, err error) // may be nil
	item  deadline.Item[*removal]
}

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

func (r *removals) add(b *Backend, some ...*removal) {
	r.mu.Lock()
	r.queue = append(r.queue, some...)
	start := r.workers < maxRemoving && b.begin()
	if start {
		r.workers++
	}
	r.mu.Unlock()
	if start {
		go func() {
			defer b.tasks.Done()
			for r.next(b) {
			}
		}()
	}
}

// now removes one for a caller that waits for it, on its goroutine, unless others are under way: then it rides with the next. If the
// caller has no time, or not enough, it goes on in the background.
func (r *removals) now(ctx context.Context, b *Backend, one *removal) {
	r.mu.Lock()
	alone := r.workers == 0 && len(r.queue) == 0 && ctx.Err() == nil && b.begin()
	if alone {
		r.workers++
		r.mark(one)
	}
	r.mu.Unlock()
	if !alone {
		r.add(b, one)
		return
	}
	defer b.tasks.Done()
	ctx, cancel := context.WithTimeout(ctx, removalTime)
	b.remove(ctx, []*removal{one})
	cancel()
	r.mu.Lock()
	r.workers--
	rest := len(r.queue) > 0
	r.mu.Unlock()
	if rest {
		r.add(b)
	}
}

// next works on what has gathered. It reports false when there is no more to do for this worker.
func (r *removals) next(b *Backend) bool {
	r.mu.Lock()
	var some []*removal
	if b.ctx.Err() == nil {
		some = r.take(r.rows)
	}
	for _, one := range some {
		r.mark(one)
	}
	if len(some) == 0 {
		r.workers--
	}
	r.mu.Unlock()
	if len(some) == 0 {
		return false
	}
	b.remove(b.asking, some) // Close does not break off what it would have to repeat
	return true
}

func (r *removals) put(one *removal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, one)
}

// take takes a batch off the queue, but for what has one of these rows. The caller holds mu.
func (r *removals) take(rows map[string]bool) (some []*removal) {
	r.queue = slices.DeleteFunc(r.queue, func(one *removal) bool {
		is := len(some) < maxBatch && !rows[one.name]
		if is {
			some = append(some, one)
		}
		return is
	})
	return some
}

// mark notes the row of one that takes a transaction, until removeRow. The caller holds mu.
func (r *removals) mark(one *removal) {
	if one.transacts() {
		r.rows[one.name] = true
	}
}

// transacts reports that it is not an owner, or not known to be one.
func (one *removal) transacts() bool { return one.seat || one.any }

// finish removes what is left, at the end, until all is removed or ctx has ended.
func (r *removals) finish(ctx context.Context, b *Backend, more []*removal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, more...)
	for len(r.queue) > 0 && ctx.Err() == nil {
		some := r.take(nil)
		left := len(r.queue)
		r.mu.Unlock()
		b.remove(ctx, some)
		r.mu.Lock()
		if len(r.queue) > left { // not all were answered
			r.mu.Unlock()
			sleep(ctx, removalPause)
			r.mu.Lock()
		}
	}
	for _, one := range r.queue {
		one.finish(false, distributed.ErrClosed)
	}
	r.queue = nil
}

func (one *removal) finish(held bool, err error) {
	if one.done != nil {
		one.done(held, err)
	}
}

// remove removes some: the owners in one statement, and then the others of each lock in a transaction, those last that were tried before.
func (b *Backend) remove(ctx context.Context, some []*removal) {
	var owners []*removal
	rows := make(map[string][]*removal)
	for _, one := range some {
		if one.transacts() {
			rows[one.name] = append(rows[one.name], one)
		} else if one.claimed() {
			owners = append(owners, one)
		}
	}
	if len(owners) > 0 {
		b.removeOwners(ctx, owners)
	}
	for _, name := range slices.SortedFunc(maps.Keys(rows), func(x, y string) int { return tries(rows[x]) - tries(rows[y]) }) {
		b.removeRow(ctx, name, rows[name])
	}
}

// claimed reports that it is to be sent.
func (one *removal) claimed() bool {
	is := one.claim == nil || one.claim()
	one.claim = nil
	return is
}

func tries(some []*removal) (most int) {
	for _, one := range some {
		most = max(most, one.tries)
	}
	return most
}

// removeRow removes what has transactions, of one lock.
func (b *Backend) removeRow(ctx context.Context, name string, some []*removal) {
	ctx, cancel := context.WithTimeout(ctx, min(removalTime, firstRemovalTime<<min(tries(some), 2)))
	defer cancel()
	some = slices.DeleteFunc(some, func(one *removal) bool { return !one.claimed() })
	start, held := time.Now(), make([]bool, len(some))
	var err error
	if len(some) > 0 {
		err = b.change(ctx, name, func(s *state) {
			for i, one := range some {
				held[i] = s.remove(one.handle) || held[i] // found by a try whose answer was lost
			}
			s.tidy()
			s.wake()
		})
		b.observe(start, err)
	}
	r := &b.removals
	r.mu.Lock()
	delete(r.rows, name)
	rest := len(r.queue) > 0
	r.mu.Unlock()
	if rest { // for this row, perhaps
		r.add(b)
	}
	if errors.Is(err, errNoRow) {
		err = nil
	}
	for i, one := range some {
		one.tries++
		b.removed(one, held[i], err)
	}
}

func (b *Backend) removeOwners(ctx context.Context, owners []*removal) {
	ctx, cancel := context.WithTimeout(ctx, removalTime)
	defer cancel()
	start := time.Now()
	found, err := b.releaseOrSkip(ctx, owners)
	b.observe(start, err)
	for _, one := range owners {
		if err == nil && one.stuck {
			b.removed(one, false, errRowLocked)
			continue
		}
		b.removed(one, found[one.name], err)
	}
}

// releaseOrSkip releases, but for those whose rows others have locked and keep.
func (b *Backend) releaseOrSkip(ctx context.Context, owners []*removal) (found map[string]bool, err error) {
	skip := b.dialect == MySQL && len(owners) > 1 || // for the same reason as renewals
		slices.ContainsFunc(owners, func(one *removal) bool { return one.stuck })
	if !skip {
		half, cancel := halfOf(ctx)
		found, err = b.repeatRelease(half, owners, b.release)
		cancel()
		skip = err != nil && ctx.Err() == nil && b.dialect == PostgreSQL && len(owners) > 1 && kindOf(err) <= collided
	}
	if skip {
		found, err = b.repeatRelease(ctx, owners, b.releaseUnlocked)
	}
	return found, err
}

func (b *Backend) repeatRelease(ctx context.Context, owners []*removal, release func(context.Context, []*removal) (map[string]bool, error)) (
	found map[string]bool, err error) {
	err = retrying(ctx, func() (err error) {
		found, err = release(ctx, owners)
		if err != nil && kindOf(err) == lost {
			for _, one := range owners {
				one.tried = true
			}
		}
		return err
	})
	return found, err
}

// removed takes the answer, or none.
func (b *Backend) removed(one *removal, held bool, err error) {
	switch {
	case err == nil:
		one.finish(held || one.tried, nil)
		b.poke(one.name, nil)
	case time.Now().After(one.until):
		one.finish(false, distributed.ErrLeaseLost)
	case b.isClosed(): // finish tries again
		one.tried = true
		b.removals.put(one)
	default:
		one.tried = true
		one.item.Owner = one
		b.later.Put(&one.item, time.Now().Add(removalPause+rand.N(removalPause)))
	}
}

// release releases owners and returns the names of those that were: on MySQL one, or see releaseUnlocked.
func (b *Backend) release(ctx context.Context, some []*removal) (map[string]bool, error) {
	if b.notifies() {
		return b.releaseAndNotify(ctx, some)
	}
	found := make(map[string]bool, len(some))
	if len(some) == 1 {
		one := some[0]
		result, err := keptQuerier{b, &b.releasing}.ExecContext(ctx, b.st().release.text, b.st().release.args(one.name, one.token, one.last, one.drawn)...)
		if err != nil {
			return nil, err
		}
		n, err := result.RowsAffected()
		found[one.name] = n > 0
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

// releaseBatch is the release of several; unlocked: of those that nobody else has locked, which returns their tokens. No assignment sees
// another one, for MySQL: the rest of a block is known by the name.
func (b *Backend) releaseBatch(some []*removal, unlocked bool) (string, []any) {
	var args []any
	mark := func(arg any) string {
		args = append(args, arg)
		return b.dialect.marks(len(args), 1)
	}
	marks := func(of func(*removal) string) string {
		var list []string
		for _, one := range some {
			list = append(list, mark(of(one)))
		}
		return strings.Join(list, ",")
	}
	where := func() string {
		return "name IN (" + marks(func(one *removal) string { return one.name }) + ") AND owner IN (" + marks(func(one *removal) string { return one.token }) + ")"
	}
	set := func() string {
		var cases strings.Builder
		for _, one := range some {
			fmt.Fprintf(&cases, " WHEN name = %s AND fence = %s THEN %s", mark(one.name), mark(one.last), mark(one.drawn))
		}
		return "fence = CASE" + cases.String() + " ELSE fence END, owner = '', update_time = {now}"
	}
	if unlocked { // marks are in the order of the text
		rows := "SELECT name AS id, owner AS token FROM {locks}{by name} WHERE " + where()
		return b.st().text(b.dialect.ofUnlocked(rows, "{locks}", "name", set(), "u.token, queued, expires_at")), args
	}
	text := "UPDATE {locks}{by name} SET " + set()
	return b.st().text(text + " WHERE " + where()), args
}

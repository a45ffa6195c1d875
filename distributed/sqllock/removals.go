package sqllock

import (
	"context"
	"errors"
	"fmt"
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
	n := min(len(r.queue), maxBatch)
	if n == 0 || b.ctx.Err() != nil {
		r.workers--
		r.mu.Unlock()
		return false
	}
	some := r.take(n)
	r.mu.Unlock()
	b.remove(b.asking, some) // Close does not break off what it would have to repeat
	return true
}

func (r *removals) put(one *removal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, one)
}

// take takes n off the queue. The caller holds mu.
func (r *removals) take(n int) []*removal {
	some := append([]*removal(nil), r.queue[:n]...)
	clear(r.queue[:n])
	r.queue = r.queue[n:]
	return some
}

// finish removes what is left, at the end, until all is removed or ctx has ended.
func (r *removals) finish(ctx context.Context, b *Backend, more []*removal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, more...)
	for len(r.queue) > 0 && ctx.Err() == nil {
		some := r.take(min(len(r.queue), maxBatch))
		r.mu.Unlock()
		b.remove(ctx, some)
		r.mu.Lock()
	}
	for _, one := range r.take(len(r.queue)) {
		one.finish(false, distributed.ErrClosed)
	}
}

func (one *removal) finish(held bool, err error) {
	if one.done != nil {
		one.done(held, err)
	}
}

// remove removes some: the owners in one statement, others one by one.
func (b *Backend) remove(ctx context.Context, some []*removal) {
	var owners []*removal
	for _, one := range some {
		if one.claim != nil && !one.claim() {
			continue
		}
		one.claim = nil
		if !one.seat && !one.any {
			owners = append(owners, one)
			continue
		}
		b.removeOne(ctx, one)
	}
	if len(owners) > 0 {
		b.removeOwners(ctx, owners)
	}
}

// removeOne removes what is not an owner, or not known to be one.
func (b *Backend) removeOne(ctx context.Context, one *removal) {
	ctx, cancel := context.WithTimeout(ctx, min(removalTime, firstRemovalTime<<min(one.tries, 2)))
	defer cancel()
	one.tries++
	start, held := time.Now(), false
	err := b.change(ctx, one.name, func(s *state) {
		held = s.remove(one.handle) || held // found by a try whose answer was lost
		s.tidy()
		s.wake()
	})
	b.observe(start, err)
	if errors.Is(err, errNoRow) {
		err = nil
	}
	b.removed(one, held, err)
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
		time.Sleep(removalPause)
		b.removals.put(one)
	default:
		one.tried = true
		one.item.Owner = one
		b.later.Put(&one.item, time.Now().Add(removalPause+rand.N(removalPause)))
	}
}

// release releases owners and returns the names of those that were: on MySQL one, or see releaseUnlocked.
func (b *Backend) release(ctx context.Context, some []*removal) (map[string]bool, error) {
	if b.set.notifier != nil {
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
	text, args := b.releaseBatch(some)
	return found, b.rows(ctx, b.db, text+" RETURNING name", args, note)
}

// releaseBatch is the release of several. fence comes before owner, for MySQL.
func (b *Backend) releaseBatch(some []*removal) (string, []any) {
	var cases, names, tokens strings.Builder
	var args []any
	mark := func(arg any) string {
		args = append(args, arg)
		return b.dialect.marks(len(args), 1)
	}
	for _, one := range some {
		fmt.Fprintf(&cases, " WHEN owner = %s AND fence = %s THEN %s", mark(one.token), mark(one.last), mark(one.drawn))
	}
	for _, one := range some {
		names.WriteString("," + mark(one.name))
	}
	for _, one := range some {
		tokens.WriteString("," + mark(one.token))
	}
	text := "UPDATE {locks}{by name} SET fence = CASE" + cases.String() + " ELSE fence END, owner = '', update_time = " + b.st().now +
		" WHERE name IN (" + names.String()[1:] + ") AND owner IN (" + tokens.String()[1:] + ")"
	return b.st().text(text), args
}

package sqllock

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// The reaper deletes the rows of locks that nobody has used for long (rule D7). It goes along the table in short ranges: it reads one
// without locking it, deletes by name what may go, and rests. So it holds up no lock, also when its process dies or stands still.

const (
	// reapTime bounds a range.
	reapTime = 30 * time.Second
	// reapRange is how many rows a range has.
	reapRange = 500
	// reapRest is how long it rests after a range, in the times that it took: a database also writes later what a deletion has changed.
	reapRest = 3
)

// reap runs until Close.
func (b *Backend) reap() {
	for sleep(b.ctx, b.set.reapTick()/2+rand.N(b.set.reapTick())) {
		if err := b.reapTurn(b.ctx); err != nil && b.ctx.Err() == nil {
			b.set.log.WarnContext(b.ctx, "sqllock: unused rows were not deleted", "error", keyless.Of(explain("reap", err)))
		}
	}
}

// reapTurn goes along the table, unless a process has begun to do so lately. What counts as old had to be old at that turn: a clock that was
// set forward since would make rows in use look old, until they are renewed.
func (b *Backend) reapTurn(ctx context.Context) error {
	var last, now, mine int64
	err := b.reaping(ctx, func(ctx context.Context) error {
		if err := b.fit(ctx); err != nil {
			return err
		}
		return one(ctx, b.db, b.st().text(lastTurn), nil, &last, &now)
	})
	if err != nil || last <= now && last > now-micros(b.set.reapTick()/2) {
		return err
	}
	r := reaper{b, min(last, now) - micros(b.set.reapAge)}
	err = b.reaping(ctx, func(ctx context.Context) error {
		if mine, err = r.exec(ctx, takeTurn, last); err == nil && mine == 1 {
			_, err = r.exec(ctx, forgetNotes)
		}
		return err
	})
	if err == nil && mine == 1 { // tables of an older version have none for runs. If the database is away, the next statement says so
		_ = b.aside(ctx, "reap", func(ctx context.Context) error {
			_, err := r.exec(ctx, forgetOldRuns, micros(distributed.RunMemory))
			return err
		})
	}
	for after, n := "", reapRange; err == nil && mine == 1 && n == reapRange; {
		start := time.Now()
		err = b.reaping(ctx, func(ctx context.Context) (err error) {
			after, n, err = r.along(ctx, after)
			return err
		})
		if err == nil && n == reapRange && !sleep(ctx, reapRest*time.Since(start)) {
			return ctx.Err()
		}
	}
	return err
}

// reaping runs statements of the reaper.
func (b *Backend) reaping(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, reapTime)
	defer cancel()
	return retrying(ctx, func() error { return fn(ctx) })
}

// reaper is one turn.
type reaper struct {
	b      *Backend
	before int64 // what nobody has used since may go, by the database's clock
}

// text puts the numbers of the turn into a statement.
func (r reaper) text(template string) string {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return r.b.st().text(strings.NewReplacer("{before}", number(r.before), "{age}", number(micros(r.b.set.reapAge)),
		"{memory}", number(micros(distributed.BrokenMemory)), "{range}", number(reapRange)).Replace(template))
}

func (r reaper) exec(ctx context.Context, template string, args ...any) (int64, error) {
	q := r.b.dialect.compile(r.text(template))
	result, err := r.b.db.ExecContext(ctx, q.text, q.args(args...)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// along does a range of rows behind a name. It returns the last one, and how many there were.
func (r reaper) along(ctx context.Context, after string) (last string, n int, err error) {
	var unused, miscounted []string
	q := r.b.dialect.compile(r.text(reapedRange))
	err = r.b.rows(ctx, r.b.db, q.text, q.args(after), func(scan func(...any) error) error {
		var isUnused, isMiscounted bool
		err := scan(&last, &isUnused, &isMiscounted)
		switch n++; {
		case isUnused:
			unused = append(unused, last)
		case isMiscounted:
			miscounted = append(miscounted, last)
		}
		return err
	})
	if err == nil && len(unused) > 0 {
		text, args := r.b.st().list(r.text(r.b.dialect.deleteUnlocked(unusedLocks)), unused)
		_, err = r.b.db.ExecContext(ctx, text, args...)
	}
	for _, name := range miscounted { // as whoever comes to the lock does
		if err == nil {
			err = ignoring(r.b.change(ctx, name, func(s *state) { s.tidy(); s.wake() }), errNoRow)
		}
	}
	return last, n, err
}

// Backlog returns the number of rows, at most a thousand, of locks that have been unused for twice the reap age, and when the oldest of them was
// due for deletion. A zero since says that rows are deleted in time.
func (b *Backend) Backlog(ctx context.Context) (rows int64, since time.Time, err error) {
	var oldest int64
	err = b.ask(ctx, "count unused rows", func(ctx context.Context) error {
		q := b.st().of(backlog)
		return one(ctx, b.db, q.text, q.args(2*micros(b.set.reapAge)), &rows, &oldest)
	})
	if err != nil || rows == 0 {
		return 0, time.Time{}, err
	}
	return rows, time.UnixMicro(oldest).Add(b.set.reapAge), nil
}

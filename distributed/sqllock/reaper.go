package sqllock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/wllock/wllock/distributed"
)

// The reaper deletes the rows of locks that nobody has used for long. A row keeps the last fence of its lock, so it goes in two
// passes: first the floor is raised to the fences of all rows that may go; a later pass deletes those of them that were
// not used meanwhile. A row that is inserted begins above the floor, and above the database's time, so fences go on even if its
// clock was set back. Between the passes is a tick, which is longer than any statement: no insert can have read the floor of
// before.
//
// One process at a time reaps: the one that moves the reaper's row to the next tick.

const (
	// reapTime bounds a pass.
	reapTime = 30 * time.Second
)

// unused is what a row has to be to go: free, or its owner's lease expired long ago, nobody queued, not changed since, and no record
// of a Break to be kept.
const unused = `queued = 0 AND members = 0 AND (owner = '' OR expires_at < {now} - $1) AND update_time < {now} - $1 AND broken IS NULL`

var reapSteps = struct{ turn, doomed, remove, highest, floor, stale, strays, notes, breaks string }{
	turn:    `UPDATE {meta} SET value = value + 1, expires_at = {now} + $1 WHERE name = 'reaper' AND expires_at <= {now}`,
	doomed:  `SELECT name FROM {locks} WHERE ` + unused + ` AND fence <= (SELECT value FROM {meta} WHERE name = 'floor') LIMIT 500`,
	remove:  `DELETE FROM {locks} WHERE name = $2 AND ` + unused + ` AND fence <= (SELECT value FROM {meta} WHERE name = 'floor')`,
	highest: `SELECT COALESCE(MAX(fence), 0) FROM {locks} WHERE ` + unused,
	floor:   `UPDATE {meta} SET value = $1 WHERE name = 'floor' AND value < $1`,
	// stale finds the locks whose counts include the dead, also of one that is held and renewed all the time.
	stale: `SELECT l.name FROM {locks} l WHERE (l.queued > 0 OR l.members > 0) AND (l.update_time < {now} - $1
  OR EXISTS (SELECT 1 FROM {waiters} w WHERE w.name = l.name AND w.expires_at < {now} - $1)) LIMIT 500`,
	// strays deletes rows that no lock counts.
	strays: `DELETE FROM {waiters} WHERE expires_at < {now} - $1 AND name NOT IN (SELECT name FROM {locks})`,
	notes:  `DELETE FROM {meta} WHERE name NOT IN ('version', 'floor', 'reaper') AND expires_at < {now}`,
	breaks: `UPDATE {locks} SET broken = NULL WHERE broken IS NOT NULL AND update_time < {now} - $1`,
}

// reap runs until Close.
func (b *Backend) reap() {
	if !b.begin() {
		return
	}
	go func() {
		defer b.tasks.Done()
		for sleep(b.ctx, b.set.reapTick/2+rand.N(b.set.reapTick)) {
			ctx, cancel := context.WithTimeout(b.ctx, reapTime)
			if err := b.reapOnce(ctx); err != nil && b.ctx.Err() == nil {
				b.set.log.WarnContext(ctx, "sqllock: unused rows were not deleted", "error", explain("reap", err))
			}
			cancel()
		}
	}()
}

// reapOnce does the second pass for the rows of earlier ones, and then the first for others, if it is this process's turn (rule D7).
func (b *Backend) reapOnce(ctx context.Context) error {
	mine, err := b.reapStep(ctx, reapSteps.turn, micros(b.set.reapTick))
	if err != nil || mine == 0 {
		return err
	}
	age := micros(b.set.reapAge)
	doomed, err := b.reapNames(ctx, reapSteps.doomed, age)
	for _, name := range doomed {
		if err == nil {
			_, err = b.reapStep(ctx, reapSteps.remove, age, name)
		}
	}
	var stale []string
	if err == nil {
		stale, err = b.reapNames(ctx, reapSteps.stale, age)
	}
	for _, name := range stale { // of processes that are gone
		if err == nil {
			err = b.change(ctx, name, func(s *state) { s.tidy(); s.wake() })
		}
	}
	if err == nil {
		err = b.raiseFloor(ctx, age)
	}
	if err == nil {
		_, err = b.reapStep(ctx, reapSteps.strays, age)
	}
	if err == nil {
		_, err = b.reapStep(ctx, reapSteps.notes)
	}
	if err == nil {
		_, err = b.reapStep(ctx, reapSteps.breaks, micros(distributed.BrokenMemory))
	}
	return err
}

func (b *Backend) raiseFloor(ctx context.Context, age int64) error {
	var highest int64
	q := b.reapQuery(reapSteps.highest)
	err := b.rows(ctx, b.db, q.text, q.args(age), func(scan func(...any) error) error { return scan(&highest) })
	if err == nil {
		_, err = b.reapStep(ctx, reapSteps.floor, highest)
	}
	return err
}

func (b *Backend) reapQuery(step string) query { return b.dialect.compile(b.st().text(step)) }

func (b *Backend) reapStep(ctx context.Context, step string, args ...any) (n int64, err error) {
	q := b.reapQuery(step)
	err = retrying(ctx, func() error {
		result, err := b.db.ExecContext(ctx, q.text, q.args(args...)...)
		if err == nil {
			n, err = result.RowsAffected()
		}
		return err
	})
	return n, err
}

func (b *Backend) reapNames(ctx context.Context, step string, age int64) (names []string, err error) {
	q := b.reapQuery(step)
	err = b.rows(ctx, b.db, q.text, q.args(age), func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		names = append(names, name)
		return err
	})
	return names, err
}

package sqllock

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
)

const (
	// unused is what a row has to be to go: free, or its owner's lease expired long ago, nobody queued, not changed since, and no record
	// of a Break to be kept.
	unused = `queued = 0 AND members = 0 AND (owner = '' OR expires_at < {ended}) AND update_time < {before} AND broken IS NULL`

	// underFloor says that the floor was raised to the row's fence, and long enough ago.
	underFloor = `fence <= COALESCE((SELECT value FROM {meta} WHERE name = 'floor' AND expires_at <= {now} - {statement}), 0)`

	// spoilt is a row with a record of a Break that is to be forgotten; or with a time that is ahead, because the database's clock was set
	// back: it would not go, or keep a lease of a process that is gone, until the clock is there again.
	spoilt = `(broken IS NOT NULL AND update_time < {forgotten}
  OR update_time > {now} + {statement} AND (owner = '' OR expires_at > {now} + {statement} + ttl))`

	// mended is what becomes of it. update_time comes last, for MySQL.
	mended = `broken = CASE WHEN update_time < {forgotten} THEN NULL ELSE broken END,
  expires_at = CASE WHEN expires_at > {now} + {statement} + ttl THEN {now} + ttl ELSE expires_at END,
  update_time = CASE WHEN update_time > {now} + {statement} THEN {now} ELSE update_time END`

	// scanLocks reads a range. Rows of waiters are counted where there are some.
	scanLocks = `SELECT l.name, l.fence, CASE WHEN ` + unused + ` THEN 1 ELSE 0 END, CASE WHEN ` + spoilt + ` THEN 1 ELSE 0 END,
  l.ticket, l.update_time, l.queued, l.members,
  CASE WHEN l.queued = 0 AND l.members = 0 THEN 0 ELSE (SELECT COUNT(*) FROM {waiters} w WHERE w.name = l.name AND w.state = 0) END,
  CASE WHEN l.queued = 0 AND l.members = 0 THEN 0 ELSE (SELECT COUNT(*) FROM {waiters} w WHERE w.name = l.name AND w.state = 1) END
FROM {locks} l{by name} WHERE l.name > $1 ORDER BY l.name LIMIT {range}`

	unusedLocks = `SELECT name AS id FROM {locks}{by name} WHERE name IN ({list}) AND ` + unused + ` AND ` + underFloor
	spoiltLocks = `SELECT name AS id FROM {locks}{by name} WHERE name IN ({list}) AND ` + spoilt

	// unchangedLock is a row as it was read. Who adds a waiter draws a ticket, and who removes one counts it, under the row's lock.
	unchangedLock = `SELECT name AS id FROM {locks}{by name}
WHERE name = $1 AND ticket = $2 AND update_time = $3 AND queued = $4 AND members = $5`

	// dead are waiters, and holders beside an owner, that have ended long ago; ahead are those whose time is.
	dead  = `expires_at < {ended}`
	ahead = `expires_at > {now} + {statement} + ttl`

	scanWaiters = `SELECT token, CASE WHEN ` + dead + ` THEN 1 ELSE 0 END, CASE WHEN ` + ahead + ` THEN 1 ELSE 0 END
FROM {waiters}{by token} WHERE token > $1 ORDER BY token LIMIT {range}`

	theseWaiters = `SELECT token AS id FROM {waiters}{by token} WHERE token IN ({list}) AND `
	theseNotes   = `SELECT name AS id FROM {meta}{by name} WHERE name IN ({list}) AND expires_at < {ended}`
	oldNotes     = `SELECT name FROM {meta} WHERE name NOT IN ('version', 'floor', 'reaper') AND expires_at < {ended} LIMIT {range}`
)

// text puts the numbers of the pass into a statement. What expires has to have ended for longer than a row has to be unused: a clock that
// is set forward by so much makes a turn late, whoever takes it.
func (p *pass) text(template string) string {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return p.b.st().text(strings.NewReplacer("{before}", number(p.before), "{ended}", number(p.before-2*micros(crowdTick)),
		"{range}", number(reapRange), "{statement}", number(micros(crowdTick)),
		"{forgotten}", number(p.known.now-micros(distributed.BrokenMemory))).Replace(template))
}

// walk goes along a table, in the order of a unique index.
func (p *pass) walk(ctx context.Context, along func(ctx context.Context, after string) (last string, n int, err error)) error {
	for after, n := "", reapRange; n == reapRange; {
		start := time.Now()
		within, cancel := context.WithTimeout(ctx, reapTime)
		last, some, err := along(within, after)
		if err == nil {
			err = p.keep(within)
		}
		cancel()
		if err == nil && some > 0 && last <= after {
			err = errNoProgress
		}
		if err != nil {
			return err
		}
		if after, n = last, some; n == reapRange && !sleep(ctx, reapRest*time.Since(start)) {
			return ctx.Err()
		}
	}
	return nil
}

// counts are those of a lock's row, and how many rows of waiters there are.
type counts struct {
	name                           string
	ticket, update                 int64
	queued, members, waits, shares int64
}

// locks does the rows of locks behind a name.
func (p *pass) locks(ctx context.Context, after string) (last string, n int, err error) {
	var doomed, bad []string
	var wrong []counts
	q := p.b.dialect.compile(p.text(scanLocks))
	err = p.b.rows(ctx, p.b.db, q.text, q.args(after), func(scan func(...any) error) error {
		var fence int64
		var isUnused, isSpoilt bool
		var c counts
		err := scan(&last, &fence, &isUnused, &isSpoilt, &c.ticket, &c.update, &c.queued, &c.members, &c.waits, &c.shares)
		n++
		switch {
		case isUnused && !p.late && p.known.covers(fence):
			doomed = append(doomed, last)
		case isUnused:
			p.highest = max(p.highest, fence)
		}
		if isSpoilt {
			bad = append(bad, last)
		}
		if c.queued != c.waits || c.members != c.shares {
			c.name = last
			wrong = append(wrong, c)
		}
		return err
	})
	deleted := int64(0)
	if err == nil {
		deleted, err = p.delete(ctx, doomed)
	}
	p.rows, p.deleted = p.rows+int64(n)-deleted, p.deleted+deleted
	if err == nil {
		_, err = p.change(ctx, p.b.dialect.ofUnlocked(spoiltLocks, "{locks}", "name", mended, "name"), bad)
	}
	for _, c := range wrong {
		if err == nil {
			err = p.recount(ctx, c)
		}
	}
	return last, n, err
}

// delete deletes rows of locks, and counts those that could go and are still there: others have them locked.
func (p *pass) delete(ctx context.Context, names []string) (int64, error) {
	deleted, err := p.change(ctx, p.b.dialect.deleteUnlocked(unusedLocks, "{locks}", "name"), names)
	if err != nil || deleted == int64(len(names)) {
		return deleted, err
	}
	text, args := p.b.st().list(p.text(unusedLocks), names)
	return deleted, p.b.rows(ctx, p.b.db, text, args, func(func(...any) error) error {
		p.backlog++
		return nil
	})
}

// recount corrects the counts of a row whose waiters were deleted: by a pass, because they were dead, or by hand. Whoever comes to the lock
// does, too. The row is as it was read, so the waiters are those that were counted.
func (p *pass) recount(ctx context.Context, c counts) error {
	_, err := p.exec(ctx, p.b.dialect.ofUnlocked(unchangedLock, "{locks}", "name", "queued = $6, members = $7", "name"),
		c.name, c.ticket, c.update, c.queued, c.members, c.waits, c.shares)
	return err
}

// waiters does the rows of waiters behind a token. They are deleted without the lock's row, which counts them until it is recounted: nobody
// takes the lock before its turn because too many are counted. Who comes back after so long finds nothing.
func (p *pass) waiters(ctx context.Context, after string) (last string, n int, err error) {
	var gone, early []string
	q := p.b.dialect.compile(p.text(scanWaiters))
	err = p.b.rows(ctx, p.b.db, q.text, q.args(after), func(scan func(...any) error) error {
		var isDead, isAhead bool
		err := scan(&last, &isDead, &isAhead)
		n++
		if isDead && !p.late {
			gone = append(gone, last)
		}
		if isAhead {
			early = append(early, last)
		}
		return err
	})
	if err == nil {
		_, err = p.change(ctx, p.b.dialect.deleteUnlocked(theseWaiters+dead, "{waiters}", "token"), gone)
	}
	if err == nil {
		_, err = p.change(ctx, p.b.dialect.ofUnlocked(theseWaiters+ahead, "{waiters}", "token", "expires_at = {now} + ttl", "token"), early)
	}
	return last, n, err
}

// forget deletes notes that have expired long ago.
func (p *pass) forget(ctx context.Context) error {
	for n := reapRange; n == reapRange && !p.late; {
		var names []string
		err := p.b.rows(ctx, p.b.db, p.text(oldNotes), nil, func(scan func(...any) error) error {
			var name string
			err := scan(&name)
			names = append(names, name)
			return err
		})
		if err != nil {
			return err
		}
		n = len(names)
		if deleted, err := p.change(ctx, p.b.dialect.deleteUnlocked(theseNotes, "{meta}", "name"), names); err != nil || deleted == 0 {
			return err
		}
	}
	return nil
}

// change changes rows by their names, but for those that others have locked: they wait for the next pass.
func (p *pass) change(ctx context.Context, statement string, names []string) (int64, error) {
	if len(names) == 0 {
		return 0, nil
	}
	text, args := p.b.st().list(p.text(statement), names)
	return p.send(ctx, text, args)
}

package sqllock

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
)

// PostgreSQL can do in one statement what takes a transaction elsewhere, for exclusive requests: it returns what it has changed, and
// several changes make one statement. All of a statement sees the queue as it was when it began, and the lock's row as it is; so
// decisions are made on the row alone, or on what can only make them more careful.

// queueUp is upsert that takes a place if the lock is not free, and releases prev also then. Who had its reply lost and asks again
// violates the uniqueness of its token; the transaction then finds the first one's place. prior is the own token if prev was
// released without the lock being taken: there is no other way to tell it. The arguments are those of acquire.
const queueUp = `WITH l AS (
  INSERT INTO {locks} AS l (name, full_name, owner, mode, ttl, fence, expires_at, instance, since, update_time)
  VALUES ($1, $2, $3, $5, $6, {now} * 1000 + $8, {now} + $7, $11, {now}, {now})
  ON CONFLICT (name) DO UPDATE SET
    prior = CASE WHEN l.owner = $3 THEN l.prior WHEN ` + isFree + ` THEN l.owner WHEN l.owner = $4 THEN $3 ELSE l.prior END,
    fence = CASE WHEN l.owner = $3 THEN l.fence
      WHEN ` + isFree + ` THEN {greatest}({now} * 1000, CASE WHEN l.owner = $4 AND l.fence = $9 THEN $10 ELSE l.fence END) + $8
      WHEN l.owner = $4 AND l.fence = $9 THEN $10 ELSE l.fence END,
    owner = CASE WHEN ` + isFree + ` THEN $3 WHEN l.owner = $4 THEN '' ELSE l.owner END,
    mode = CASE WHEN ` + isFree + ` THEN $5 ELSE l.mode END,
    ttl = CASE WHEN ` + isFree + ` THEN $6 ELSE l.ttl END,
    expires_at = CASE WHEN ` + isFree + ` THEN {now} + $7 ELSE l.expires_at END,
    instance = CASE WHEN ` + isFree + ` THEN $11 ELSE l.instance END,
    since = CASE WHEN ` + isFree + ` THEN {now} ELSE l.since END,
    ticket = CASE WHEN ` + isFree + ` THEN l.ticket ELSE l.ticket + 1 END,
    queued = CASE WHEN ` + isFree + ` THEN l.queued ELSE l.queued + 1 END,
    update_time = {now}
  RETURNING name, owner, prior, fence, queued, ticket, CASE WHEN owner = '' THEN '' ELSE instance END AS holder, members),
w AS (
  INSERT INTO {waiters} (name, ticket, token, mode, state, ttl, expires_at, instance, since)
  SELECT name, ticket, $3, $5, 0, $6, {now} + $7, $11, {now} FROM l WHERE owner <> $3)`

// isFree is the condition of upsert, by the time at which the statement began: it is asked for each column, and a lease that expired
// between two of them would be taken with the fences of before.
const isFree = `(l.owner = $3 OR l.queued = 0 AND l.members = 0 AND (l.owner = '' OR l.owner = $4
  OR l.expires_at <= (date_part('epoch', statement_timestamp()) * 1000000)::bigint))`

const (
	queueUpSilently = queueUp + `
SELECT owner = $3, fence, prior, queued, holder, members, 0 FROM l`

	// queueUpLoudly notifies those that may enter, if prev was released; and if it is the first that waits, the holders.
	queueUpLoudly = queueUp + `, h AS (
  ` + heads + ` AND w.name IN (SELECT name FROM l WHERE prior = $3)
  UNION ALL SELECT name, owner FROM l WHERE queued = 1 AND owner NOT IN ('', $3)
  UNION ALL SELECT m.name, m.token FROM {waiters} m JOIN l ON l.name = m.name WHERE l.queued = 1 AND m.state = 1)
SELECT owner = $3, fence, prior, queued, holder, members, (SELECT COUNT(` + pgNotify + `) FROM h) FROM l`
)

// takeFirst gives the lock to a waiter if no row of another is before its own, be it alive or not. Those that were queued before it
// are seen, for they were committed before. If its own row has gone meanwhile, because it was left or taken for dead,
// the division by zero undoes it all. 1 name  2 token  3 fences
const takeFirst = `WITH t AS (
  UPDATE {locks} l SET owner = $2, mode = 0, ttl = w.ttl, fence = {greatest}({now} * 1000, l.fence) + $3,
    expires_at = {now} + w.ttl / 2, queued = l.queued - 1, instance = w.instance, since = {now}, update_time = {now}
  FROM {waiters} w
  WHERE l.name = $1 AND w.token = $2 AND w.state = 0 AND w.mode = 0 AND l.members = 0 AND (l.owner = '' OR l.expires_at <= {now})
    AND NOT EXISTS (SELECT 1 FROM {waiters} b WHERE b.name = $1 AND b.state = 0 AND b.ticket < w.ticket)
  RETURNING l.fence, l.queued),
d AS (DELETE FROM {waiters} x USING t WHERE x.token = $2 AND x.state = 0 RETURNING 1)
SELECT fence, queued, 1 / (SELECT COUNT(*) FROM d), EXISTS (SELECT 1 FROM {waiters} o WHERE o.name = $1 AND o.state = 0 AND o.token <> $2) FROM t`

const (
	uniqueViolation = "23505"
	divisionByZero  = "22012"
)

// queueAtOnce is Enter in one statement, also if the lock is taken. done is false if a transaction has to decide.
func (b *Backend) queueAtOnce(ctx context.Context, c *claim) (a answer, done bool, err error) {
	if b.dialect != PostgreSQL || c.noWait || c.mode == distributed.Shared || c.prev != nil && c.prev.seat {
		return a, false, nil
	}
	var prior string
	var queued, members, notified int
	err = retrying(ctx, func() error {
		text := b.st().queueUp.text
		if b.notifies() {
			text = b.st().queueUpLoudly.text
		}
		a = answer{outcome: queuedUp, count: fenceBlock, sent: time.Now()}
		return b.loud(b.rows(ctx, b.db, text, b.acquireArgs(c, a.count), func(scan func(...any) error) error {
			var mine bool
			err := scan(&mine, &a.last, &prior, &queued, &a.holder, &members, &notified)
			a.holder = distributed.HolderText(a.holder, members)
			if mine {
				a.outcome = granted
			}
			return err
		}))
	})
	if err != nil {
		if code(err) == uniqueViolation { // an earlier try was carried out
			return answer{prevHeld: c.prev != nil}, false, nil
		}
		return a, false, err
	}
	a.contended, a.ahead = queued > 0, queued-1 // it counts itself, unless it was granted
	if c.prev != nil {
		a.prevHeld = prior == c.prev.token && a.outcome == granted || prior == c.token
		if prior == c.token && queued > 1 && notified == 0 && b.notifies() {
			b.notifyHeads(ctx, []string{c.name})
		}
	}
	return a, true, nil
}

// takeAtOnce is take in one statement. done is false if a transaction has to decide.
func (b *Backend) takeAtOnce(ctx context.Context, c *claim) (a answer, done bool, err error) {
	if b.dialect != PostgreSQL || c.mode == distributed.Shared {
		return a, false, nil
	}
	a = answer{outcome: granted, count: fenceBlock}
	var others bool
	err = b.rows(ctx, b.db, b.st().takeFirst.text, b.st().takeFirst.args(c.name, c.token, a.count), func(scan func(...any) error) error {
		var queued, one int
		done = true
		err := scan(&a.last, &queued, &one, &others)
		a.contended = queued > 0
		return err
	})
	if err != nil && code(err) == divisionByZero {
		return a, false, nil
	}
	if a.contended && !others { // somebody has come just now, or rows were deleted by hand: they are counted anew
		_ = b.change(ctx, c.name, func(s *state) { s.tidy(); s.wake() })
	}
	return a, done && err == nil, err
}

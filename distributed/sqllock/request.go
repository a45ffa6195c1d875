package sqllock

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
)

// entered is an Enter in the database: one statement if the lock is free and nobody is queued, else a transaction.
func (b *Backend) entered(ctx context.Context, c *claim) (a answer, err error) {
	if err := retrying(ctx, func() error { return b.fit(ctx) }); err != nil {
		return a, err
	}
	for {
		if !c.contended && !b.stuck.has(c.name) {
			err = c.retrying(ctx, func() (err error) {
				a, err = b.acquire(ctx, c)
				return err
			})
			if err != nil && b.is.goesOn && isTimeout(err) {
				b.stuck.note(c.name, nil)
			}
			if err != nil || a.outcome == granted {
				return a, err
			}
		}
		if c.noWait && c.prev == nil {
			held, holder, err := b.isHeld(ctx, c)
			if err != nil || held {
				return answer{outcome: refusedHeld, holder: holder}, err
			}
		}
		a, done, err := b.queueAtOnce(ctx, c)
		if done || err != nil {
			return a, err
		}
		sent := time.Now()
		c.released, c.contended = c.released || a.prevHeld, true
		err = c.retrying(ctx, func() error {
			return b.changeOnce(ctx, c.name, func(s *state) {
				a = s.enter(c)
				c.released = c.released || a.prevHeld // perhaps by a try whose answer was lost
				a.sent, a.prevHeld = sent, c.released
			})
		})
		if err == nil || errors.Is(err, errNoRow) {
			b.stuck.forget(c.name)
		}
		if !errors.Is(err, errNoRow) {
			return a, err
		}
		b.seen.forget(c.name)
		c.contended = false // the reaper has removed it meanwhile
	}
}

// retrying notes tries that were not answered.
func (c *claim) retrying(ctx context.Context, try func() error) error {
	return retrying(ctx, func() error {
		err := try()
		c.unanswered = c.unanswered || err != nil && effectOf(err) == lost
		return err
	})
}

// acquire is the one statement: an update, or if this process has not seen the row yet, an insert that updates. Its answer is granted,
// or queuedUp if it has changed nothing.
func (b *Backend) acquire(ctx context.Context, c *claim) (answer, error) {
	a := answer{outcome: queuedUp, count: c.count(), sent: time.Now()}
	q, kept := &b.st().again, keptQuerier{b, &b.reacquiring}
	if !b.seen.has(c.name) {
		q, kept = &b.st().acquire, keptQuerier{b, &b.acquiring}
	}
	args := q.args(b.acquireArgs(c, a.count)...)
	if !b.is.returning {
		err := acquireByID(ctx, kept, q.text, args, &a)
		b.seen.note(c.name, err)
		return a, err
	}
	err := b.rows(ctx, kept, q.text, args, func(scan func(...any) error) error {
		var prior string
		var queued int
		if err := scan(&a.last, &prior, &queued); err != nil {
			return err
		}
		a.outcome, a.contended, a.prevHeld = granted, queued > 0, c.prev != nil && prior == c.prev.token
		return nil
	})
	b.seen.note(c.name, err)
	return a, err
}

// acquireArgs are the arguments of acquire, in the order of their numbers.
func (b *Backend) acquireArgs(c *claim, count int64) []any {
	var full any
	if c.full != "" {
		full = c.full
	}
	prev := handle{}
	if c.prev != nil {
		prev = *c.prev
	}
	return []any{
		c.name, full, c.token, prev.token, int(c.mode), micros(c.ttl), micros(distributed.ClaimWindow(c.ttl)), count, prev.last,
		prev.drawn, c.holder,
	}
}

// acquireByID reads the answer from the insert id: see mysqlUpsert.
func acquireByID(ctx context.Context, kept keptQuerier, text string, args []any, a *answer) error {
	result, err := kept.ExecContext(ctx, text, args...)
	if err != nil {
		return err
	}
	id, err := result.LastInsertId()
	if err == nil && id != 0 {
		a.outcome, a.last, a.prevHeld = granted, id/2, id%2 == 1
	}
	return err
}

// isHeld reports that a request with NoWait is refused, and by whom, for which a look is enough. false: perhaps not.
func (b *Backend) isHeld(ctx context.Context, c *claim) (held bool, holder string, err error) {
	err = retrying(ctx, func() error {
		return b.rows(ctx, b.db, b.st().peek.text, b.st().peek.args(c.name), func(scan func(...any) error) error {
			var owner, instance string
			var mode distributed.Mode
			var ttl, left int64
			var members, sharing int
			err := scan(&owner, &mode, &ttl, &left, &instance, &members, &sharing)
			alive := owner != "" && owner != c.token && left > 0 && left <= ttl // else it is cut (rule D8)
			held = alive && (c.mode == distributed.Exclusive || mode == distributed.Exclusive)
			if alive {
				sharing++
				holder = distributed.HolderText(instance, members)
			}
			held = held || c.limit > 0 && sharing >= c.limit
			return err
		})
	})
	return held, holder, err
}

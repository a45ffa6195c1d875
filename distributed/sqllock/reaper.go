package sqllock

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/wllock/wllock/internal/keyless"
)

// The reaper deletes the rows of locks that nobody has used for long. A row keeps the last fence of its lock, so it goes in two
// passes: the first raises the floor to the fences of all rows that may go; a later one deletes those of them that were not used
// meanwhile. A row that is inserted begins above the floor, and above the database's time. So fences go on, however short a row lives, and
// also if the clock was set back: no insert can have read the floor of before, since no statement lasts as long as there is between a
// raise and the first deletion under it (crowdTick), and the statement that deletes looks at the floor itself.
//
// A pass goes along the tables in short ranges: it reads one without locking it, and then changes rows by name, but for those that
// others have locked. It has no transaction, and rests most of the time. So it holds up no lock, also when its process dies or stands
// still, and a pass of another may run beside it: each statement checks again what it changes.
//
// Who owns a pass: the process that moves the reaper's row in meta to the next turn, by its number. It keeps the turn while it is at
// work, and stops when it finds that another has taken it.

const (
	// reapTime bounds a range.
	reapTime = 30 * time.Second
	// reapRange is how many rows a range has.
	reapRange = 500
	// reapRest is how long it rests after a range, in the times that it took: a database also writes later what a deletion has changed.
	reapRest = 3
	// crowd is how many rows make the next pass come after crowdTick, and take rows that were unused for that long: clients that invent
	// keys fill the table no further.
	crowd = 100_000
	// crowdTick is longer than any statement lasts.
	crowdTick = 2 * time.Minute
	// turnCheck is how often a pass makes sure that the turn is still its own.
	turnCheck = 30 * time.Second
	// floorPause is the longest pause between two tries to raise the floor.
	floorPause = 20 * time.Millisecond
)

var (
	errTurnLost    = keyless.Errorf("another process has taken the reaper's turn")
	errFloorLocked = keyless.Errorf("another transaction has locked the row of the floor")
	errNoProgress  = keyless.Errorf("the database does not sort names by their bytes")
)

// reap runs until Close.
func (b *Backend) reap() {
	crowded := false // as far as this process knows
	for early, open := b.awaitTurn(crowded); open; early, open = b.awaitTurn(crowded) {
		var err error
		if crowded, err = b.reapTurn(b.ctx, early); err != nil && b.ctx.Err() == nil {
			b.set.log.WarnContext(b.ctx, "sqllock: unused rows were not deleted", "error", keyless.Of(explain("reap", err)))
		}
	}
}

// awaitTurn waits until it may be time for a pass; early: because this process alone has met so many new names that they may be a crowd.
// open is false when the Backend is closed.
func (b *Backend) awaitTurn(crowded bool) (early, open bool) {
	timer := time.NewTimer(b.reapPause(crowded))
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, true
	case <-b.seen.many:
		return true, true
	case <-b.ctx.Done():
		return false, false
	}
}

func (b *Backend) reapPause(crowded bool) time.Duration {
	if crowded {
		return crowdTick + rand.N(crowdTick/8)
	}
	return b.set.reapTick/2 + rand.N(b.set.reapTick)
}

// reapTurn does the second pass for the rows of earlier ones, and at the same time the first for others, if it is this process's turn
// (rule D7). It reports whether many rows are left, as far as is known.
func (b *Backend) reapTurn(ctx context.Context, early bool) (crowded bool, err error) {
	asking, cancel := context.WithTimeout(ctx, reapTime)
	defer cancel()
	if err := b.fit(asking); err != nil {
		return false, err
	}
	known, err := b.reaping(asking)
	if err != nil {
		return false, err
	}
	p := b.newPass(known)
	if mine, err := p.take(asking, early); err != nil || !mine {
		return p.crowded, err
	}
	if err = p.walk(ctx, p.waiters); err == nil {
		err = p.walk(ctx, p.locks)
	}
	if errors.Is(err, errTurnLost) {
		return p.crowded, nil
	}
	ending, cancelEnding := context.WithTimeout(b.ctx, reapTime) // a pass that was broken off is not in vain
	defer cancelEnding()
	err = cmp.Or(err, p.raise(ending), p.end(ending, err == nil))
	return p.crowded, err
}

// pass is one over the tables. It is of one goroutine.
type pass struct {
	b       *Backend
	known   reaping   // at its beginning
	before  int64     // what nobody has used since may go, by the database's clock
	late    bool      // but not in this pass
	crowded bool      // the last pass has left many rows; at its end: this one
	checked time.Time // when the turn was its own
	began   time.Time

	highest                int64 // fence of the rows that the next pass may delete
	rows, deleted, backlog int64
}

// newPass decides how old a row is that goes. The time is read once, so a clock that is set during the pass makes no row older. A turn
// that seems to be long overdue may be so because the clock was set forward, and then a holder's row looks old until it is renewed; so
// that pass deletes nothing, and the next one does. A turn that was never taken is due since 1970.
func (b *Backend) newPass(known reaping) *pass {
	overdue, age := time.Duration(0), b.set.reapAge
	if known.due > 0 {
		overdue = time.Duration(known.now-known.due) * time.Microsecond
	}
	crowded := known.Rows > b.set.reapCrowd
	if crowded && overdue <= crowdTick/2 {
		age = crowdTick
	}
	return &pass{b: b, known: known, crowded: crowded, before: known.now - micros(age), late: overdue > age/2, began: time.Now()}
}

// take takes the turn if it is due; or so far ahead that the clock was set back since it was taken (compare rule D8); or early, to find out
// that there is a crowd, if the last one is some time ago. The turn's number decides between two processes.
func (p *pass) take(ctx context.Context, early bool) (mine bool, err error) {
	ahead, tick := p.known.due-p.known.now, micros(p.b.set.reapTick)
	early = early && !p.crowded && ahead <= tick-micros(crowdTick)
	if !p.known.there || ahead > 0 && ahead <= tick+micros(crowdTick) && !early {
		return false, nil
	}
	const turn = `UPDATE {meta} SET value = value + 1, expires_at = {now} + $1 WHERE name = 'reaper' AND value = $2`
	n, err := p.exec(ctx, turn, tick, p.known.turn)
	if err != nil || n == 0 {
		return false, err
	}
	p.known.turn++
	p.checked = time.Now()
	return true, p.note(ctx, p.known.begun())
}

// keep makes sure from time to time that the turn is still this pass's, and keeps it.
func (p *pass) keep(ctx context.Context) error {
	if time.Since(p.checked) < turnCheck {
		return nil
	}
	p.checked = time.Now()
	return p.next(ctx, p.b.set.reapTick)
}

// next says when the next turn is.
func (p *pass) next(ctx context.Context, after time.Duration) error {
	n, err := p.exec(ctx, `UPDATE {meta} SET expires_at = {now} + $1 WHERE name = 'reaper' AND value = $2`, micros(after), p.known.turn)
	if err == nil && n == 0 {
		err = errTurnLost
	}
	return err
}

// raise raises the floor, for the next pass, and notes when. Who inserts a row shares the lock of the floor's on MySQL for a moment: a
// raise that waited for it would have other inserts wait behind it, so it does not. A time that is ahead is of a clock that was set back.
func (p *pass) raise(ctx context.Context) error {
	if p.highest <= p.known.floor && p.known.raised <= p.known.now {
		return nil
	}
	text := p.b.dialect.ofUnlocked(`SELECT name AS id FROM {meta}{by name} WHERE name = 'floor' AND (value < $1 OR expires_at > {now})`,
		"{meta}", "name", "value = {greatest}(value, $2), expires_at = {now}", "name")
	for {
		n, err := p.exec(ctx, text, p.highest, p.highest)
		if err != nil || n > 0 {
			return err
		}
		if now, err := p.b.reaping(ctx); err != nil || now.floor >= p.highest && now.raised <= now.now {
			return err // another pass has raised it
		}
		if !sleep(ctx, rand.N(floorPause)) {
			return errFloorLocked
		}
	}
}

// end notes what a pass has done that came to the end of the tables.
func (p *pass) end(ctx context.Context, complete bool) error {
	if !complete {
		return nil
	}
	err := p.forget(ctx)
	if err == nil {
		err = p.note(ctx, p.known.ended(p))
	}
	after := p.b.set.reapTick
	if p.crowded = p.rows > p.b.set.reapCrowd; p.crowded {
		after = crowdTick
	}
	return cmp.Or(err, ignoring(p.next(ctx, after), errTurnLost))
}

// exec runs a statement of the pass.
func (p *pass) exec(ctx context.Context, text string, args ...any) (n int64, err error) {
	q := p.b.dialect.compile(p.text(text))
	return p.send(ctx, q.text, q.args(args...))
}

func (p *pass) send(ctx context.Context, text string, args []any) (n int64, err error) {
	err = retrying(ctx, func() error {
		result, err := p.b.db.ExecContext(ctx, text, args...)
		if err == nil {
			n, err = result.RowsAffected()
		}
		return err
	})
	return n, err
}

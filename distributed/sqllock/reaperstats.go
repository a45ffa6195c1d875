package sqllock

import (
	"context"
	"time"
)

// ReaperStats tells of the last pass that deleted rows of unused locks, of whichever process. Times are the database's.
type ReaperStats struct {
	At      time.Time     // now
	Ended   time.Time     // when the last pass came to the end of the tables. Zero: none did, or not within twice the reap age
	Took    time.Duration // with its pauses, which are most of it
	Rows    int64         // rows of locks that it left, used or not
	Deleted int64         // rows of locks that it deleted
	Backlog int64         // of Rows: it could have deleted them, but others had them locked

	// Since is when the first pass began since which none has come to the end and left no backlog. Zero: the last one did. It is
	// set while a pass is under way.
	Since time.Time
}

// ReaperStats asks the database, in one statement that only reads.
func (b *Backend) ReaperStats(ctx context.Context) (ReaperStats, error) {
	var known reaping
	err := b.ask(ctx, "reaper's notes", func(ctx context.Context) (err error) {
		known, err = b.reaping(ctx)
		return err
	})
	return known.ReaperStats, err
}

// Backlog returns since when rows of unused locks are not deleted in time, and how many of those that the last pass has seen others had locked.
// A zero since says that they are: no pass is without an end, or has left some, for a twelfth of the reap age, which is two hours by default.
func (b *Backend) Backlog(ctx context.Context) (rows int64, since time.Time, err error) {
	s, err := b.ReaperStats(ctx)
	if err != nil || s.Since.IsZero() || s.At.Sub(s.Since) <= 2*b.set.reapTick {
		return 0, time.Time{}, err
	}
	return s.Backlog, s.Since, nil
}

// reaping is what meta knows of the reaper, and what all processes read there.
type reaping struct {
	ReaperStats
	now           int64 // of the database, in microseconds, as all below but the numbers
	there         bool  // the turn's row is
	turn          int64 // its number
	due           int64 // when the next one is
	floor, raised int64 // a fence, and when it was raised
}

const reaperNotes = `SELECT name, value, expires_at, {now} FROM {meta} WHERE name = 'floor' OR name >= 'reaper' AND name < 'reaper;'`

// reaping reads what is known.
func (b *Backend) reaping(ctx context.Context) (known reaping, err error) {
	err = retrying(ctx, func() error {
		known = reaping{}
		return b.rows(ctx, b.db, b.st().text(reaperNotes), nil, func(scan func(...any) error) error {
			var name string
			var value, expires int64
			err := scan(&name, &value, &expires, &known.now)
			known.read(name, value, expires)
			return err
		})
	})
	known.At = timeOf(known.now)
	return known, err
}

func (r *reaping) read(name string, value, expires int64) {
	switch name {
	case "floor":
		r.floor, r.raised = value, expires
	case "reaper":
		r.there, r.turn, r.due = true, value, expires
	case "reaper:since":
		r.Since = timeOf(value)
	case "reaper:ended":
		r.Ended = timeOf(value)
	case "reaper:took":
		r.Took = time.Duration(value) * time.Microsecond
	case "reaper:rows":
		r.Rows = value
	case "reaper:deleted":
		r.Deleted = value
	case "reaper:backlog":
		r.Backlog = value
	}
}

// covers reports that rows with this fence may go: the floor was raised to it, and long enough ago.
func (r *reaping) covers(fence int64) bool {
	return fence <= r.floor && r.raised <= r.now-micros(crowdTick)
}

// begun are the notes when a pass has begun.
func (r *reaping) begun() ReaperStats {
	s := r.ReaperStats
	if s.Since.IsZero() {
		s.Since = s.At
	}
	return s
}

// ended are the notes when it has come to the end.
func (r *reaping) ended(p *pass) ReaperStats {
	s := r.begun()
	s.Took, s.Rows, s.Deleted, s.Backlog = time.Since(p.began), p.rows, p.deleted, p.backlog
	s.Ended = s.At.Add(s.Took)
	if s.Backlog == 0 {
		s.Since = time.Time{}
	}
	return s
}

// noteReaper writes the notes, for all processes.
const noteReaper = `INSERT INTO {meta} (name, value, expires_at) VALUES ('reaper:since', $1, {now} + $7), ('reaper:ended', $2, {now} + $7),
  ('reaper:took', $3, {now} + $7), ('reaper:rows', $4, {now} + $7), ('reaper:deleted', $5, {now} + $7), ('reaper:backlog', $6, {now} + $7) `

func (p *pass) note(ctx context.Context, s ReaperStats) error {
	replace := "ON CONFLICT (name) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at"
	if p.b.dialect == MySQL {
		replace = "ON DUPLICATE KEY UPDATE value = VALUES(value), expires_at = VALUES(expires_at)"
	}
	_, err := p.exec(ctx, noteReaper+replace, microsOf(s.Since), microsOf(s.Ended), micros(s.Took), s.Rows, s.Deleted, s.Backlog,
		2*micros(p.b.set.reapAge))
	return err
}

// timeOf and microsOf keep the zero time.
func timeOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}

func microsOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

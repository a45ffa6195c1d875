package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// state is a lock as a transaction has read it. decide.go changes it, and save writes what has changed.
type state struct {
	now     int64 // of the database, in microseconds
	owner   string
	mode    distributed.Mode // of the owner
	ttl     int64
	fence   int64
	expires int64
	ticket  int64
	holder  string  // the owner's instance
	since   int64   // when it took the lock
	entries []entry // in the order of their tickets

	queued, members int // as the row says
	dirty           bool
	removed         []string // tokens
	woken           []string // tokens of those who should look: they may enter, or somebody waits for them
}

// entry is a row of the waiters.
type entry struct {
	ticket  int64
	token   string
	mode    distributed.Mode
	holds   bool
	ttl     int64
	limit   int   // of one that waits; 0: none
	fence   int64 // of one that holds: the first of its block
	expires int64
	holder  string // its instance
	since   int64  // when it began to wait, or to hold

	added, changed bool
}

// errNoRow says that the lock's row does not exist.
var errNoRow = keyless.Errorf("the row of this lock has gone")

// querier is a connection or a transaction.
type querier interface {
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
}

// change locks the row of a lock, reads it and its queue, lets decide change them, and writes what has changed: all in one
// transaction. The row's lock orders all changes; the queue is read after it was got, so nothing is missed (rule D1). It returns
// errNoRow, and calls nothing, if there is no row. decide may be called again when the transaction has collided with others.
func (b *Backend) change(ctx context.Context, name string, decide func(*state)) error {
	return retrying(ctx, func() error { return b.changeOnce(ctx, name, decide) })
}

func (b *Backend) changeOnce(ctx context.Context, name string, decide func(*state)) error {
	return b.inTransaction(ctx, func(q querier) error {
		s, err := b.read(ctx, q, name)
		if err != nil {
			return err
		}
		decide(s)
		return b.save(ctx, q, name, s)
	})
}

func (b *Backend) read(ctx context.Context, q querier, name string) (*state, error) {
	s, found := &state{}, false
	err := b.rows(ctx, q, b.st().load.text, b.st().load.args(name), func(scan func(...any) error) error {
		found = true
		return scan(&s.owner, &s.mode, &s.ttl, &s.fence, &s.expires, &s.ticket, &s.holder, &s.since, &s.queued, &s.members, &s.now)
	})
	if err != nil || !found {
		return nil, cmp.Or(err, errNoRow)
	}
	if s.queued == 0 && s.members == 0 {
		return s, nil // whoever adds a row counts it here, under the lock that we have
	}
	err = b.rows(ctx, q, b.st().entries.text, b.st().entries.args(name), func(scan func(...any) error) error {
		var e entry
		err := scan(&e.ticket, &e.token, &e.mode, &e.holds, &e.ttl, &e.fence, &e.expires, &e.holder, &e.since)
		if !e.holds {
			e.limit, e.fence = int(e.fence), 0
		}
		s.entries = append(s.entries, e)
		return err
	})
	return s, err
}

// save writes what has changed.
func (b *Backend) save(ctx context.Context, q querier, name string, s *state) error {
	queued, members := s.count()
	if s.dirty || queued != s.queued || members != s.members {
		args := b.st().store.args(name, s.owner, int(s.mode), s.ttl, s.fence, s.expires, s.ticket, queued, members,
			s.holder, s.since)
		if _, err := q.ExecContext(ctx, b.st().store.text, args...); err != nil {
			return err
		}
	}
	if len(s.removed) > 0 {
		text, args := b.st().list(b.st().drop, s.removed)
		if _, err := q.ExecContext(ctx, text, args...); err != nil {
			return err
		}
	}
	for i := range s.entries {
		e := &s.entries[i]
		var err error
		switch {
		case e.added:
			_, err = q.ExecContext(ctx, b.st().add.text, b.st().add.args(name, e.ticket, e.token, int(e.mode), number(e.holds), e.ttl, e.number(),
				e.expires, e.holder, e.since)...)
		case e.changed:
			_, err = q.ExecContext(ctx, b.st().alter.text, b.st().alter.args(name, e.ticket, number(e.holds), e.number(), e.expires, e.since)...)
		}
		if err != nil {
			return err
		}
	}
	return b.notify(ctx, q, s.woken)
}

// number is what the row has as its fence: a waiter has none, so it is its limit there. No column of its own: tables need no change,
// and processes of both versions share them.
func (e *entry) number() int64 {
	if e.holds {
		return e.fence
	}
	return int64(e.limit)
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

// rows calls each for every row. It reads to the end, which is when SQLite finishes a statement that changes something.
func (b *Backend) rows(ctx context.Context, q querier, text string, args []any, each func(scan func(...any) error) error) error {
	r, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	for r.Next() {
		if err := each(r.Scan); err != nil {
			return err
		}
	}
	return cmp.Or(r.Err(), r.Close())
}

// inTransaction runs fn in a transaction that sees what others have committed before each of its statements. None outlives a process that
// stands still in it for long: PostgreSQL's are bounded by the statement that locks the row, MySQL's from the beginning.
func (b *Backend) inTransaction(ctx context.Context, fn func(querier) error) error {
	conn, err := b.begun(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err = fn(conn); err == nil {
		_, err = conn.ExecContext(ctx, b.is.commit)
		err = b.loud(err)
	}
	if err != nil {
		return b.rollBack(conn, err)
	}
	return nil
}

// begun returns a connection in a transaction. Those that the server has closed while they were idle are passed over.
func (b *Backend) begun(ctx context.Context) (conn *sql.Conn, err error) {
	for range b.db.Stats().Idle + 1 {
		if conn, err = b.db.Conn(ctx); err != nil {
			return nil, err
		}
		if _, err = conn.ExecContext(ctx, b.is.begin); err == nil {
			return conn, nil
		}
		err = b.rollBack(conn, err)
		_ = conn.Close()
		if !errors.Is(err, driver.ErrBadConn) {
			break
		}
	}
	return nil, err
}

// rollBack ends a transaction that may have begun, and returns why.
func (b *Backend) rollBack(conn *sql.Conn, err error) error {
	// On a context of its own: the caller's may be why it failed. A connection that stays in the transaction is not used again.
	end, cancel := context.WithTimeout(context.Background(), rollbackTime)
	defer cancel()
	_, failed := conn.ExecContext(end, rollback)
	if failed == nil && b.is.reset != "" {
		_, failed = conn.ExecContext(end, b.is.reset)
	}
	if failed != nil && code(failed) != "sqlite1" { // 1: there is none any more
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	return err
}

// rollbackTime is plenty: a rollback waits for nobody.
const rollbackTime = time.Second

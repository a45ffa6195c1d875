package fenced

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Guard claims fences in one database. Its methods may be called at any time, from any goroutine.
type Guard struct {
	db  *sql.DB
	set settings
}

// Option is a setting of a Guard.
type Option func(*guardOptions)

type guardOptions struct {
	table, schema string
	isolation     sql.IsolationLevel
	longest       time.Duration
}

// WithTable names the table of fences (default: wllock_fences). All programs that write the same data must use the same table.
func WithTable(name string) Option { return func(o *guardOptions) { o.table = name } }

// WithSchema names the schema of that table, on MySQL its database (default: that of the connection).
func WithSchema(name string) Option { return func(o *guardOptions) { o.schema = name } }

// WithIsolation makes Tx begin transactions at that level (default: the database's).
func WithIsolation(level sql.IsolationLevel) Option {
	return func(o *guardOptions) { o.isolation = level }
}

// WithLongestStatement makes PostgreSQL allow a statement for d, even if less than that is left of the lease (default: 0). A process that is
// paused or killed in the middle of a statement keeps the row from the next holder for that long.
func WithLongestStatement(d time.Duration) Option { return func(o *guardOptions) { o.longest = d } }

// New returns a Guard. It does not use db yet. See Migrate for the table.
func New(db *sql.DB, d Dialect, opts ...Option) (*Guard, error) {
	if db == nil {
		return nil, errors.New("fenced: db is nil")
	}
	s, err := settingsOf(d, opts)
	if err != nil {
		return nil, err
	}
	return &Guard{db, s}, nil
}

// Tx begins a transaction, claims the locks that ctx carries, or those of only (see For), runs fn, and commits. If fn returns an error or
// panics, or ctx ends, as it does when the lock is lost, Tx rolls the transaction back. It returns
//   - an *Error that Is ErrFenced and wllock.ErrLeaseLost, if a later holder has claimed. Then fn has not run.
//   - ErrNoHold, ErrNoFence or ErrUnordered, before anything is sent
//   - the error of fn, or the driver's, unchanged. A commit whose answer is lost may have been carried out.
//
// One hold may have several transactions, one after the other. Tx repeats a claim once after a serialization failure. It does not repeat fn:
// after such a failure in fn, call Tx again.
func (g *Guard) Tx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error, only ...Lock) error {
	claims, left, err := claimsOf(ctx, only)
	if err != nil {
		return err
	}
	tx, err := g.begin(ctx, claims, left)
	if err != nil && hasState(err, "40001", "Error 1213") {
		tx, err = g.begin(ctx, claims, left)
	}
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after the commit it does nothing
	if err := fn(ctx, tx); err != nil {
		return g.explained(err, left)
	}
	return g.explained(tx.Commit(), left)
}

// begin returns a transaction that has claimed.
func (g *Guard) begin(ctx context.Context, claims []claim, left time.Duration) (*sql.Tx, error) {
	tx, err := g.db.BeginTx(ctx, &sql.TxOptions{Isolation: g.set.isolation})
	if err != nil {
		return nil, err
	}
	if err := g.claim(ctx, tx, claims, left); err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}

// Claim claims, as Tx does, in a transaction that the caller has begun. Call it as the first statement: at REPEATABLE READ the transaction may
// otherwise read data that is older than the lock. After an error the caller must roll back.
func (g *Guard) Claim(ctx context.Context, tx *sql.Tx, only ...Lock) error {
	claims, left, err := claimsOf(ctx, only)
	if err != nil {
		return err
	}
	return g.claim(ctx, tx, claims, left)
}

func (g *Guard) claim(ctx context.Context, tx *sql.Tx, claims []claim, left time.Duration) error {
	if g.set.dialect == MySQL {
		return g.claimMySQL(ctx, tx, claims)
	}
	var args []any
	for _, c := range claims {
		args = append(args, c.hold.Key(), int64(c.writer), int64(c.reader))
	}
	if g.set.dialect == PostgreSQL {
		pause := pauseOf(left)
		args = append(args, pause.Milliseconds(), max(pause, g.set.longest).Milliseconds())
	}
	done, err := tx.ExecContext(ctx, g.set.claimText(len(claims)), args...)
	if err != nil {
		return fmt.Errorf("fenced: claim: %w", err)
	}
	if n, err := done.RowsAffected(); err != nil || n == int64(len(claims)) {
		return err
	}
	for _, c := range claims {
		var writer, reader uint64
		err := tx.QueryRowContext(ctx, g.set.text(knownRow[g.set.dialect]), c.hold.Key()).Scan(&writer, &reader)
		switch {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return fmt.Errorf("fenced: claim: %w", err)
		case writer > c.fence() || c.writer > 0 && reader >= c.writer:
			return c.fenced(max(writer, reader))
		}
	}
	return fmt.Errorf("fenced: claim: %w", ErrFenced) // by a row that is gone now: see Forget
}

// pauseOf is how long a claimed transaction may pause: what is left of the lease, or a second for one that is about to be renewed.
func pauseOf(left time.Duration) time.Duration { return max(left, time.Second) }

func (c claim) fenced(known uint64) error { return &Error{c.hold.Shown(), c.fence(), known} }

// explained adds to an error of PostgreSQL why it has ended the statement, or the session.
func (g *Guard) explained(err error, left time.Duration) error {
	if g.set.dialect != PostgreSQL || err == nil {
		return err
	}
	pause := pauseOf(left)
	switch {
	case hasState(err, "25P03", "25P03"):
		return fmt.Errorf("fenced: the transaction paused for longer than what was left of the lease, %v: %w", pause.Round(time.Millisecond), err)
	case hasState(err, "57014", "57014"):
		return fmt.Errorf("%w (fenced allows a statement %v: the time left of the lease, or WithLongestStatement if that is longer)",
			err, max(pause, g.set.longest).Round(time.Millisecond))
	}
	return err
}

// hasState reports that err has that SQLSTATE, or, if its driver does not say one, that its text begins so.
func hasState(err error, state, text string) bool {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState() == state
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.HasPrefix(err.Error(), text) {
			return true
		}
	}
	return false
}

package fenced

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// patience is how long a claim waits for a row before it looks whether an earlier holder has it.
const patience = 500 * time.Millisecond

// claimMySQL claims one row after the other.
func (g *Guard) claimMySQL(ctx context.Context, tx *sql.Tx, claims []claim) error {
	for _, c := range claims {
		sign := 1
		if c.writer == 0 {
			sign = -1
		}
		stop := g.clearWay(ctx, c)
		// Literals, since the driver sends a statement with arguments in two round trips.
		row := fmt.Sprintf("(x'%x', %d, %d, 1, %d * CAST(CONNECTION_ID() AS SIGNED), %s, UTC_TIMESTAMP(6))",
			c.hold.Key(), c.writer, c.reader, sign, serverMySQL)
		done, err := tx.ExecContext(ctx, strings.Replace(g.set.text(claimMySQL), "{row}", row, 1))
		stop()
		if err != nil {
			return fmt.Errorf("fenced: claim: %w", err)
		}
		if known, err := done.LastInsertId(); err != nil {
			return fmt.Errorf("fenced: claim: %w", err)
		} else if known > 0 {
			return c.fenced(uint64(known))
		}
	}
	return nil
}

// clearWay ends the session of an earlier holder that keeps the row, again and again until it is stopped. stop returns when nothing of it
// is under way.
func (g *Guard) clearWay(ctx context.Context, c claim) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	timer := time.AfterFunc(patience, func() {
		defer close(done)
		for ctx.Err() == nil {
			if id := g.inTheWay(ctx, c); id > 0 {
				_, _ = g.db.ExecContext(ctx, fmt.Sprint("KILL ", id)) // it may have ended by itself. Else the claim goes on waiting
			}
			select {
			case <-ctx.Done():
			case <-time.After(patience):
			}
		}
	})
	return func() {
		if cancel(); !timer.Stop() {
			<-done
		}
	}
}

// inTheWay returns the connection that keeps the row of a claim, if it is of an earlier holder. 0: it is not, or it is not known. A
// claim that is not committed shows at READ UNCOMMITTED only. It is asked for first: one that is committed in between shows in both.
func (g *Guard) inTheWay(ctx context.Context, c claim) (session int64) {
	var claims, before int64
	var writer, reader uint64
	row := g.look(ctx, sql.LevelReadUncommitted, `SELECT claims, session, writer, reader FROM {table} WHERE lock_key = ? AND server = {server}`, c)
	if row(&claims, &session, &writer, &reader) != nil {
		return 0
	}
	row = g.look(ctx, sql.LevelReadCommitted, `SELECT COALESCE(MAX(claims), 0) FROM {table} WHERE lock_key = ?`, c)
	if row(&before) != nil || before == claims {
		return 0
	}
	switch {
	case session > 0 && writer < c.fence(): // an exclusive holder
		return session
	case session < 0 && reader < c.writer: // a shared one, before an exclusive one
		return -session
	}
	return 0
}

// look reads a row in a transaction of that level.
func (g *Guard) look(ctx context.Context, level sql.IsolationLevel, query string, c claim) (scan func(to ...any) error) {
	return func(to ...any) error {
		tx, err := g.db.BeginTx(ctx, &sql.TxOptions{Isolation: level, ReadOnly: true})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		return tx.QueryRowContext(ctx, g.set.text(query), c.hold.Key()).Scan(to...)
	}
}

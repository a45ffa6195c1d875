package sqllock

import (
	"context"
	"database/sql"
	"sync"
)

// prepared is a statement of the shortest way to a lock, which MySQL and SQLite would spend most of their time on reading. With
// PostgreSQL drivers keep statements by themselves, unless a pooler forbids it.
type prepared struct {
	mu   sync.Mutex
	stmt *sql.Stmt // guarded by mu; nil: not yet
}

// of returns the statement, prepared by the first caller that has time for it; nil: the text is to be sent.
func (p *prepared) of(ctx context.Context, b *Backend, text string) *sql.Stmt {
	if !b.is.prepares {
		return nil
	}
	p.mu.Lock()
	stmt := p.stmt
	p.mu.Unlock()
	if stmt != nil {
		return stmt
	}
	stmt, err := b.db.PrepareContext(ctx, text)
	if err != nil {
		return nil // the statement itself will say why
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stmt != nil {
		_ = stmt.Close() // another caller was quicker
	} else {
		p.stmt = stmt
	}
	return p.stmt
}

func (p *prepared) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stmt != nil {
		_ = p.stmt.Close()
	}
}

// keptQuerier runs statements that may be prepared.
type keptQuerier struct {
	b *Backend
	p *prepared
}

// ExecContext implements querier.
func (k keptQuerier) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	if stmt := k.p.of(ctx, k.b, text); stmt != nil {
		if r, err := stmt.ExecContext(ctx, args...); !unprepared(err) {
			return r, err
		}
	}
	return k.b.db.ExecContext(ctx, text, args...)
}

// QueryContext implements querier.
func (k keptQuerier) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	if stmt := k.p.of(ctx, k.b, text); stmt != nil {
		if r, err := stmt.QueryContext(ctx, args...); !unprepared(err) {
			return r, err
		}
	}
	return k.b.db.QueryContext(ctx, text, args...)
}

// unpreparedCodes are MySQL's: it has too many prepared statements, this one is to be prepared anew, or a proxy has changed the server.
var unpreparedCodes = map[string]bool{"1461": true, "1615": true, "1243": true}

// unprepared reports that a statement was not carried out because it could not be prepared on its connection: its text can be sent.
func unprepared(err error) bool { return err != nil && unpreparedCodes[code(err)] }

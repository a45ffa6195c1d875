package fenced_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/fenced"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/wllocktest"
)

// store is what the functions below sell from: 10 pieces at first. Each piece that is sold is an order.
type store struct {
	*sql.DB
	guard   *fenced.Guard
	dialect fenced.Dialect
}

var errGone = errors.New("another holder was there")

// q is a query in the database's language.
func (s *store) q(text string) string {
	if s.dialect == fenced.PostgreSQL {
		for i := 1; strings.Contains(text, "?"); i++ {
			text = strings.Replace(text, "?", fmt.Sprint("$", i), 1)
		}
	}
	return text
}

// querier is a database, or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (s *store) read(ctx context.Context, q querier) (qty int, err error) {
	return qty, q.QueryRowContext(ctx, "SELECT qty FROM stock").Scan(&qty)
}

func (s *store) write(ctx context.Context, q querier, qty int) error {
	_, err := q.ExecContext(ctx, s.q("UPDATE stock SET qty = ?"), qty)
	return errors.Join(err, s.order(ctx, q))
}

func (s *store) order(ctx context.Context, q querier) error {
	_, err := q.ExecContext(ctx, "INSERT INTO orders (n) VALUES (1)")
	return err
}

// sell reads, and writes what it has read less one.
func (s *store) sell(ctx context.Context, q querier) error {
	qty, err := s.read(ctx, q)
	if err != nil {
		return err
	}
	return s.write(ctx, q, qty-1)
}

func (s *store) tx(ctx context.Context, level sql.IsolationLevel, fn func(tx *sql.Tx) error) error {
	tx, err := s.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// changed says that another holder was there if a statement has changed nothing.
func changed(done sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return errGone
}

func fenceIn(ctx context.Context) int64 {
	held, _ := wllock.HeldFrom(ctx)
	return int64(held.Fence())
}

// mistakes are wrong when their holder is paused before one of their statements.
var mistakes = map[string]func(s *store, ctx context.Context) error{
	"read, then write": func(s *store, ctx context.Context) error { return s.sell(ctx, s) },
	"read in the lock, write in a transaction": func(s *store, ctx context.Context) error {
		qty, err := s.read(ctx, s)
		if err != nil {
			return err
		}
		return s.tx(ctx, sql.LevelDefault, func(tx *sql.Tx) error { return s.write(ctx, tx, qty-1) })
	},
	"read before the claim": func(s *store, ctx context.Context) error {
		qty, err := s.read(ctx, s)
		if err != nil {
			return err
		}
		return s.guard.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return s.write(ctx, tx, qty-1) })
	},
	"read in a claimed transaction, write in another one that is not": func(s *store, ctx context.Context) (err error) {
		var qty int
		err = s.guard.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
			qty, err = s.read(ctx, tx)
			return err
		})
		if err != nil {
			return err
		}
		return s.tx(ctx, sql.LevelDefault, func(tx *sql.Tx) error { return s.write(ctx, tx, qty-1) })
	},
	"what one claimed transaction has read, another one writes": func(s *store, ctx context.Context) error {
		return errors.Join(s.guard.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return s.sell(ctx, tx)
		}), s.sell(ctx, s))
	},
	"a refused claim that is ignored": func(s *store, ctx context.Context) error {
		err := s.guard.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return s.sell(ctx, tx) })
		if errors.Is(err, fenced.ErrFenced) {
			return s.tx(ctx, sql.LevelDefault, func(tx *sql.Tx) error { return s.write(ctx, tx, 9) })
		}
		return err
	},
	"a fence that is looked at first, and then not": func(s *store, ctx context.Context) error {
		var fence int64
		err := s.QueryRowContext(ctx, "SELECT fence FROM stock").Scan(&fence)
		if err == nil && fence > fenceIn(ctx) {
			err = errGone
		}
		if err == nil {
			_, err = s.ExecContext(ctx, s.q("UPDATE stock SET fence = ?"), fenceIn(ctx))
		}
		if err != nil {
			return err
		}
		return s.sell(ctx, s)
	},
	"a fence that is compared in the last write, whose answer is not looked at": func(s *store, ctx context.Context) error {
		qty, err := s.read(ctx, s)
		if err == nil {
			_, err = s.ExecContext(ctx, s.q("UPDATE stock SET qty = ?, fence = ? WHERE fence < ?"), qty-1, fenceIn(ctx), fenceIn(ctx))
		}
		return errors.Join(err, s.order(ctx, s))
	},
	"a fence that only this process compares": func(s *store, ctx context.Context) error {
		if held, _ := wllock.HeldFrom(ctx); held.Err() != nil {
			return held.Err()
		}
		return s.sell(ctx, s)
	},
	"a number of the version that only this process compares": func(s *store, ctx context.Context) error {
		before, err := s.read(ctx, s)
		if err != nil {
			return err
		}
		now, err := s.read(ctx, s)
		if err == nil && now != before {
			err = errGone
		}
		if err != nil {
			return err
		}
		return s.write(ctx, s, now-1)
	},
}

// correct ones are right however long their holder is paused.
var correct = map[string]func(s *store, ctx context.Context) error{
	"fenced.Tx": func(s *store, ctx context.Context) error {
		return s.guard.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return s.sell(ctx, tx) })
	},
	"fenced.Tx, twice": func(s *store, ctx context.Context) error {
		for range 2 {
			if err := s.guard.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return s.sell(ctx, tx) }); err != nil {
				return err
			}
		}
		return nil
	},
	"fenced.For": func(s *store, ctx context.Context) error {
		return s.guard.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return s.sell(ctx, tx) }, fenced.For("product", "1000"))
	},
	"a claim in a transaction of one's own": func(s *store, ctx context.Context) error {
		return s.tx(ctx, sql.LevelDefault, func(tx *sql.Tx) error {
			if err := s.guard.Claim(ctx, tx); err != nil {
				return err
			}
			return s.sell(ctx, tx)
		})
	},
	"a fence in the row": func(s *store, ctx context.Context) error {
		return s.tx(ctx, sql.LevelDefault, func(tx *sql.Tx) error {
			err := changed(tx.ExecContext(ctx, s.q("UPDATE stock SET fence = ? WHERE fence < ?"), fenceIn(ctx), fenceIn(ctx)))
			if err != nil {
				return err
			}
			return s.sell(ctx, tx)
		})
	},
	"a decrement that needs no lock": func(s *store, ctx context.Context) error {
		return s.tx(ctx, sql.LevelDefault, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE stock SET qty = qty - 1 WHERE qty > 0")
			return errors.Join(err, s.order(ctx, tx))
		})
	},
	"a number of the version": func(s *store, ctx context.Context) error {
		qty, err := s.read(ctx, s)
		if err != nil {
			return err
		}
		return s.tx(ctx, sql.LevelDefault, func(tx *sql.Tx) error {
			if err := changed(tx.ExecContext(ctx, s.q("UPDATE stock SET qty = ? WHERE qty = ?"), qty-1, qty)); err != nil {
				return err
			}
			return s.order(ctx, tx)
		})
	},
	"a write of the row first": func(s *store, ctx context.Context) error {
		return s.tx(ctx, sql.LevelDefault, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "UPDATE stock SET qty = qty"); err != nil {
				return err
			}
			return s.sell(ctx, tx)
		})
	},
	"serializable": func(s *store, ctx context.Context) error {
		return s.tx(ctx, sql.LevelSerializable, func(tx *sql.Tx) error { return s.sell(ctx, tx) })
	},
	"prepared statements in a claimed transaction": func(s *store, ctx context.Context) error {
		return s.guard.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			read, err := tx.PrepareContext(ctx, "UPDATE stock SET qty = qty - 1")
			if err == nil {
				_, err = read.ExecContext(ctx)
			}
			return errors.Join(err, s.order(ctx, tx))
		})
	},
}

// judged is a test that notes its failures.
type judged struct {
	testing.TB
	mu    sync.Mutex
	found []string
}

func (j *judged) Errorf(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.found = append(j.found, fmt.Sprintf(format, args...))
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	onAll(t, "sqlite")
}

func TestOverlapWithTwoSwitches(t *testing.T) {
	testscope.Long(t, "waits for transactions that wait for each other")
	t.Parallel()
	onAll(t, "sqlite", wllocktest.OverlapTwice())
	onAll(t, "postgres", wllocktest.OverlapTwice())
}

// onAll has Overlap find all mistakes, and nothing else.
func onAll(t *testing.T, kind string, opts ...wllocktest.OverlapOption) {
	for name, sell := range mistakes {
		t.Run(kind+"/mistakes/"+name, func(t *testing.T) {
			t.Parallel()
			found := overlap(t, kinds[kind](t, near), sell, opts...)
			require.NotEmpty(t, found)
			require.Contains(t, found[0], "wllocktest: paused before ")
		})
	}
	for name, sell := range correct {
		t.Run(kind+"/correct/"+name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, overlap(t, kinds[kind](t, near), sell, opts...))
		})
	}
}

// overlap returns what Overlap finds.
func overlap(t *testing.T, db *database, sell func(*store, context.Context) error, opts ...wllocktest.OverlapOption) []string {
	watched, err := wllocktest.OpenDB(db.Driver(), db.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, watched.Close()) })
	db.do(t, "CREATE TABLE orders (n INTEGER)")
	db.do(t, "ALTER TABLE stock ADD COLUMN fence BIGINT NOT NULL DEFAULT 0")
	db.guard(t)
	guard, err := fenced.New(watched, db.dialect)
	require.NoError(t, err)
	s := &store{DB: watched, guard: guard, dialect: db.dialect}
	j := &judged{TB: t}
	wllocktest.Overlap(j, watched, func(ctx context.Context) error { return sell(s, ctx) }, func(ctx context.Context) error {
		var left, sold int
		err := db.QueryRowContext(ctx, "SELECT qty, (SELECT count(*) FROM orders) FROM stock").Scan(&left, &sold)
		if err == nil && left+sold != 10 {
			err = fmt.Errorf("%d left and %d sold, of 10", left, sold)
		}
		return err
	}, append(opts, wllocktest.OverlapLocks(wllock.Resource{Name: "product", Key: "1000"}), wllocktest.OverlapBefore(func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, "UPDATE stock SET qty = 10")
		if err == nil {
			_, err = db.ExecContext(ctx, "DELETE FROM orders")
		}
		return err
	}))...)
	return j.found
}

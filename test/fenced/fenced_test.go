package fenced_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/fenced"
)

func TestAClaimExcludesEarlierHolders(t *testing.T) {
	onEach(t, func(t *testing.T, db *database) {
		g := db.guard(t)
		var writers, readers [7]context.Context // in the order of their fences
		for i := range writers {
			writers[i], readers[i] = hold(t), hold(t, wllock.Shared())
		}
		for _, step := range []struct{ claims, known context.Context }{ // known: it is refused by this
			{writers[3], nil},
			{writers[3], nil}, // one hold has several transactions
			{writers[2], writers[3]},
			{readers[2], writers[3]},
			{readers[5], nil},
			{readers[4], nil},
			{writers[4], readers[5]},
			{writers[6], nil},
			{readers[5], writers[6]},
			{writers[3], writers[6]},
		} {
			before := db.qty(t)
			err := g.Tx(step.claims, sell)
			if step.known == nil {
				require.NoError(t, err)
				require.Equal(t, before-1, db.qty(t))
				continue
			}
			require.ErrorIs(t, err, fenced.ErrFenced)
			require.ErrorIs(t, err, wllock.ErrLeaseLost)
			var refused *fenced.Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, fenced.Error{Key: "shop:product:1000", Fence: fenceOf(t, step.claims), Known: fenceOf(t, step.known)}, *refused)
			require.Equal(t, before, db.qty(t))
		}
	})
}

// The later holder claims while the transaction of the earlier one is open, at each level: it reads what that has committed, and the
// earlier one is refused from then on.
func TestTheNextHolderWaitsForTheCommit(t *testing.T) {
	onEach(t, func(t *testing.T, db *database) {
		levels := []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
		if db.dialect == fenced.SQLite {
			levels = levels[:1]
		}
		for i, level := range levels {
			g := db.guard(t, fenced.WithIsolation(level))
			first, second := hold(t), hold(t)
			claimed, answered := make(chan struct{}), make(chan error)
			go func() {
				<-claimed
				answered <- g.Tx(second, func(ctx context.Context, tx *sql.Tx) error {
					var qty int
					err := tx.QueryRowContext(ctx, "SELECT qty FROM stock").Scan(&qty)
					if err == nil && qty != 9-i {
						err = errors.New("it reads what was before the earlier holder's commit")
					}
					return err
				})
			}()
			require.NoError(t, g.Tx(first, func(ctx context.Context, tx *sql.Tx) error {
				close(claimed)
				select {
				case err := <-answered:
					return errors.Join(errors.New("two have claimed at a time"), err)
				case <-time.After(50 * time.Millisecond):
				}
				return sell(ctx, tx)
			}), level)
			require.NoError(t, <-answered, level)
			require.ErrorIs(t, g.Tx(first, nothing(t)), fenced.ErrFenced, level)
		}
	})
}

// A process that stands still inside its transaction does not keep the row: the next holder is through in about a second, and what the
// earlier one has written does not count.
func TestAPausedTransactionIsEnded(t *testing.T) {
	onEach(t, func(t *testing.T, db *database) {
		if db.dialect == fenced.SQLite {
			return // nothing can take the lock of a file from a process
		}
		for _, opts := range [][]wllock.CallOption{nil, {wllock.Shared()}} {
			g := db.guard(t)
			start := time.Now()
			err := g.Tx(holdKey(t, t.Context(), "1000", time.Second, opts...), func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(t, sell(ctx, tx))
				require.NoError(t, g.Tx(hold(t), sell))
				require.Less(t, time.Since(start), 4*time.Second)
				return sell(ctx, tx)
			})
			require.Error(t, err)
			if db.dialect == fenced.PostgreSQL {
				require.ErrorContains(t, err, "paused for longer than what was left of the lease")
			}
			require.Equal(t, 9-len(opts), db.qty(t))
		}
	})
}

// Claims that wait for a reader's, or a later holder's, end no session.
func TestOnlyEarlierHoldersAreEnded(t *testing.T) {
	t.Parallel()
	db := kinds["mariadb"](t, near)
	g := db.guard(t)
	earlier, before, reader, after := hold(t), hold(t, wllock.Shared()), hold(t, wllock.Shared()), hold(t, wllock.Shared())
	for waiting, reason := range map[context.Context]error{earlier: fenced.ErrFenced, before: nil, after: nil} {
		answered := make(chan error, 1)
		require.NoError(t, g.Tx(reader, func(ctx context.Context, tx *sql.Tx) error {
			go func() { answered <- g.Tx(waiting, sell) }()
			time.Sleep(1200 * time.Millisecond)
			return sell(ctx, tx)
		}))
		require.ErrorIs(t, <-answered, reason)
	}
}

// The row is locked by a session that has claimed nothing. The one whose claim it shows has committed long since, and does something else.
func TestASessionThatHasCommittedIsNotEnded(t *testing.T) {
	t.Parallel()
	db := kinds["mariadb"](t, near)
	db.guard(t)
	earlier, later := db.again(), db.again()
	earlier.SetMaxOpenConns(1)
	claims := func(pool *sql.DB) error {
		g, err := fenced.New(pool, db.dialect)
		require.NoError(t, err)
		return g.Tx(hold(t), sell)
	}
	require.NoError(t, claims(earlier))
	other, err := earlier.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = other.ExecContext(t.Context(), "CREATE TEMPORARY TABLE other (n INTEGER)")
	require.NoError(t, err)

	operator, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = operator.ExecContext(t.Context(), "UPDATE wllock_fences SET claimed_at = claimed_at")
	require.NoError(t, err)
	answered := make(chan error, 1)
	go func() { answered <- claims(later) }()
	time.Sleep(1200 * time.Millisecond)
	require.NoError(t, operator.Rollback())
	require.NoError(t, <-answered)
	require.NoError(t, other.Commit())
}

func TestAllLocksOfTheContextAreClaimed(t *testing.T) {
	onEach(t, func(t *testing.T, db *database) {
		g := db.guard(t)
		on := func(ctx context.Context, key string) context.Context { return holdKey(t, ctx, key, 10*time.Second) }
		before := on(t.Context(), "b")
		inner := on(t.Context(), "b")
		both := on(inner, "a")
		a := on(on(inner, "b"), "a")
		after := on(t.Context(), "b")
		require.NoError(t, g.Tx(both, sell, fenced.For("product", "a")))
		require.NoError(t, g.Tx(before, sell), "b was claimed, too")
		require.NoError(t, g.Tx(both, sell))
		require.ErrorIs(t, g.Tx(before, nothing(t)), fenced.ErrFenced)
		require.NoError(t, g.Tx(after, sell))
		require.ErrorIs(t, g.Tx(a, nothing(t)), fenced.ErrFenced)
		require.NoError(t, g.Tx(both, sell, fenced.For("product", "a")), "a was claimed, though b was refused")
		require.ErrorIs(t, g.Tx(both, nothing(t), fenced.For("product", "a"), fenced.For("product", "c")), fenced.ErrNoHold)
	})
}

func TestWhatFailsIsRolledBack(t *testing.T) {
	onEach(t, func(t *testing.T, db *database) {
		g := db.guard(t)
		earlier, later := hold(t), hold(t)
		other := errors.New("other")
		require.Equal(t, other, g.Tx(later, func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, sell(ctx, tx))
			return other
		}))
		require.Panics(t, func() {
			_ = g.Tx(later, func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(t, sell(ctx, tx))
				panic("other")
			})
		})
		ctx, cancel := context.WithCancel(later)
		require.Error(t, g.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			defer cancel()
			return sell(ctx, tx)
		}))
		require.Equal(t, 10, db.qty(t))
		require.NoError(t, g.Tx(earlier, sell), "a claim that was rolled back counts")
	})
}

// Claim in a transaction of the caller's own.
func TestClaimInATransaction(t *testing.T) {
	onEach(t, func(t *testing.T, db *database) {
		g := db.guard(t)
		earlier, later := hold(t), hold(t)
		claim := func(ctx context.Context) error {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			if err := g.Claim(ctx, tx); err != nil {
				require.NoError(t, tx.Rollback())
				return err
			}
			require.NoError(t, sell(ctx, tx))
			return tx.Commit()
		}
		require.NoError(t, claim(later))
		require.ErrorIs(t, claim(earlier), fenced.ErrFenced)
		require.Equal(t, 9, db.qty(t))
	})
}

// The bounds of PostgreSQL are those of the transaction, and only lower what the session has.
func TestBoundsOfStatementsAndPauses(t *testing.T) {
	t.Parallel()
	db := kinds["postgres"](t, near)
	db.SetMaxOpenConns(1)
	settings := func(ctx context.Context, q interface {
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}) (pause, statement string) {
		require.NoError(t, q.QueryRowContext(ctx,
			"SELECT current_setting('idle_in_transaction_session_timeout'), current_setting('statement_timeout')").Scan(&pause, &statement))
		return pause, statement
	}
	within := func(set string, opts ...fenced.Option) (pause, statement string) {
		g := db.guard(t, opts...)
		db.do(t, set)
		require.NoError(t, g.Tx(hold(t), func(ctx context.Context, tx *sql.Tx) error {
			pause, statement = settings(ctx, tx)
			return nil
		}))
		return pause, statement
	}
	ms := func(text string) time.Duration {
		d, err := time.ParseDuration(text)
		require.NoError(t, err)
		return d
	}
	pause, statement := within("SET statement_timeout = 0")
	for _, most := range []string{pause, statement} {
		require.LessOrEqual(t, ms(most), 5*time.Second) // a new lease lasts for half of its TTL
		require.Greater(t, ms(most), 3*time.Second)
	}
	_, statement = within("SET statement_timeout = '1500ms'")
	require.Equal(t, "1500ms", statement)
	_, statement = within("SET statement_timeout = '2min'", fenced.WithLongestStatement(time.Minute))
	require.Equal(t, "1min", statement)
	pause, statement = settings(t.Context(), db)
	require.Equal(t, []string{"0", "2min"}, []string{pause, statement})

	g := db.guard(t)
	err := g.Tx(holdKey(t, t.Context(), "1000", time.Second), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "SELECT pg_sleep(3)")
		return err
	})
	require.ErrorContains(t, err, "WithLongestStatement")
}

func TestMigrateSweepAndForget(t *testing.T) {
	onEach(t, func(t *testing.T, db *database) {
		db.do(t, map[fenced.Dialect]string{
			fenced.PostgreSQL: "CREATE SCHEMA other", fenced.MySQL: "SELECT 1", fenced.SQLite: "ATTACH ':memory:' AS other",
		}[db.dialect])
		var all sync.WaitGroup
		for range 8 {
			g, err := fenced.New(db.again(), db.dialect, fenced.WithTable("fences"))
			require.NoError(t, err)
			all.Go(func() {
				if err := g.Migrate(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		g := db.guard(t, fenced.WithTable("fences"))
		earlier, later := hold(t), hold(t)
		require.NoError(t, g.Tx(later, sell))
		n, err := g.Sweep(t.Context(), time.Hour)
		require.NoError(t, err)
		require.Zero(t, n)
		db.do(t, map[fenced.Dialect]string{
			fenced.PostgreSQL: "UPDATE fences SET claimed_at = claimed_at - interval '61 min'",
			fenced.MySQL:      "UPDATE fences SET claimed_at = claimed_at - INTERVAL 61 MINUTE",
			fenced.SQLite:     "UPDATE fences SET claimed_at = claimed_at - 3660",
		}[db.dialect])
		n, err = g.Sweep(t.Context(), time.Hour)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		_, err = g.Sweep(t.Context(), time.Second)
		require.ErrorContains(t, err, "want 1m0s or more")

		require.NoError(t, g.Tx(later, sell))
		require.ErrorIs(t, g.Tx(earlier, nothing(t)), fenced.ErrFenced)
		require.NoError(t, g.Forget(t.Context(), "shop:product:1000"))
		require.NoError(t, g.Tx(earlier, sell))

		g, err = fenced.New(db.DB, db.dialect)
		require.NoError(t, err)
		require.ErrorContains(t, g.Tx(earlier, nothing(t)), "wllock_fences") // it was not made
	})
}

package sqlshop

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWrongURLsSayWhatIsAllowed(t *testing.T) {
	for _, url := range []string{
		"", "sqlite:", "sqlite://file", "oracle://h/shop", "mysql:h/shop", "mysql://h", "mysql:///shop", "mysql://u:secret%@h/shop",
		"mysql://u:secret@h/shop?timeout=soon", "postgres://u:secret@h:port/shop", "postgres://u:secret@127.0.0.1:1/shop?sslmode=perhaps",
	} {
		err := Check(url)
		require.Error(t, err, url)
		assert.Contains(t, err.Error(), "allowed: sqlite", url)
		assert.NotContains(t, err.Error(), "secret")
		_, err = Open(url, 1, atOnce)
		assert.Error(t, err, url)
	}
	for _, url := range []string{"sqlite:shop.db", "sqlite:/shop.db", "sqlite:///shop.db", "mysql://u:p@h/shop?timeout=5s", "mysql://h:1/shop", "postgres://h/shop", "postgresql://u@h:1/shop"} {
		assert.NoError(t, Check(url), url)
	}
}

func TestTablesHideThePassword(t *testing.T) {
	assert.Equal(t, "flashsale_stock and flashsale_orders in mysql://h:1/shop", Tables("mysql://u:secret@h:1/shop?password=secret"))
	assert.Equal(t, "flashsale_stock and flashsale_orders in sqlite:shop.db", Tables("sqlite:shop.db"))
}

func TestParametersAreNumberedForPostgreSQL(t *testing.T) {
	const query = `UPDATE t SET a = ? WHERE b = ?`
	assert.Equal(t, query, dialects["mysql"].sql(query))
	assert.Equal(t, `UPDATE t SET a = $1 WHERE b = $2`, dialects["postgres"].sql(query))
}

func TestNoOtherTableIsTouched(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url, atOnce)
		for _, q := range []string{`CREATE TABLE orders (id BIGINT)`, `CREATE TABLE stock (id BIGINT)`, `INSERT INTO orders VALUES (1)`} {
			_, err := s.db.ExecContext(t.Context(), q)
			require.NoError(t, err)
		}
		for range 2 { // the second time over its own tables
			require.NoError(t, s.Create(t.Context()))
			require.NoError(t, s.Stock(t.Context(), "p", 3))
			require.NoError(t, s.OneStatement(t.Context(), "p", "a"))
			s.expect(t, Audit{Sold: 1, Left: 2, OutOfOrder: 1})
		}
		require.NoError(t, s.Stock(t.Context(), "p", 4))
		s.expect(t, Audit{Left: 4})
		var n int
		require.NoError(t, s.db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM orders`).Scan(&n))
		assert.Equal(t, 1, n)
	})
}

func TestEveryStatementIsCounted(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := create(t, url, 1, atOnce)
		require.NoError(t, s.Connect(t.Context()))
		for _, want := range []int64{4, 3} { // BEGIN, UPDATE, INSERT, COMMIT; then BEGIN, UPDATE, ROLLBACK
			before := s.Statements.Load()
			_ = s.OneStatement(t.Context(), "p", "a")
			assert.Equal(t, want, s.Statements.Load()-before)
		}
	})
}

func TestServerCPU(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := create(t, url, 1, atOnce)
		before, known := s.ServerCPU()
		require.Equal(t, !strings.HasPrefix(url, "sqlite:"), known)
		for began := time.Now(); known && time.Since(began) < time.Minute; {
			_, _ = s.read(t.Context(), "p")
			if now, _ := s.ServerCPU(); now > before {
				return
			}
		}
		assert.False(t, known, "a minute of reading takes CPU time")
	})
}

func TestConnectSaysWhere(t *testing.T) {
	for _, url := range []string{"mysql://u:secret@127.0.0.1:1/shop", "postgres://u:secret@127.0.0.1:1/shop"} {
		err := open(t, url, atOnce).Connect(t.Context())
		assert.ErrorContains(t, err, "connect to ")
		assert.NotContains(t, err.Error(), "secret")
	}
}

// Two transactions lock two rows, each the other's second: one is rolled back, with an error after which it may try again.
func TestADeadlockIsTransient(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := create(t, url, 1, atOnce)
		if s.dialect.forUpdate == "" {
			t.Skip("SQLite locks the whole file")
		}
		require.NoError(t, s.Stock(t.Context(), "q", 1))
		firstLocks, both := new(sync.WaitGroup), new(sync.WaitGroup)
		firstLocks.Add(2)
		answers := make([]error, 2)
		for i, rows := range [][]string{{"p", "q"}, {"q", "p"}} {
			both.Go(func() {
				answers[i] = s.whole(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					_, err := s.ask(ctx, tx, selectStock+s.dialect.forUpdate, rows[0])
					firstLocks.Done()
					firstLocks.Wait()
					if err == nil {
						_, err = s.ask(ctx, tx, selectStock+s.dialect.forUpdate, rows[1])
					}
					return err
				})
			})
		}
		both.Wait()
		err := errors.Join(answers...)
		require.Error(t, err)
		assert.True(t, s.dialect.transient(err), err)
		assert.True(t, answers[0] == nil || answers[1] == nil, "one of them is served")
	})
}

// PostgreSQL has a serialization failure where the row has changed since the snapshot.
func TestASerializationFailureIsTransient(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := create(t, url, 3, atOnce)
		if !s.dialect.numbered {
			t.Skip("the others wait or overwrite at this isolation")
		}
		tx, err := s.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(t.Context(), `SELECT qty FROM flashsale_stock`)
		require.NoError(t, err)
		require.NoError(t, s.OneStatement(t.Context(), "p", "a"))
		_, err = tx.ExecContext(t.Context(), `UPDATE flashsale_stock SET qty = 0`)
		assert.True(t, s.dialect.transient(err), err)
	})
}

func TestRetriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Shop{dialect: dialects["mysql"]}
		tries, began := 0, time.Now()
		err := s.retry(t.Context(), func() error { tries++; return errConflict })
		assert.ErrorIs(t, err, ErrContended)
		assert.Equal(t, maxTries, tries)
		assert.Less(t, time.Since(began), maxTries*longestPause)

		patience, cancel := context.WithTimeoutCause(t.Context(), time.Second, ErrSoldOut)
		defer cancel()
		assert.ErrorIs(t, s.retry(patience, func() error { return errConflict }), ErrSoldOut, "the cause of patience's end")

		failed := errors.New("disk full")
		assert.ErrorIs(t, s.retry(t.Context(), func() error { return failed }), failed, "what is not transient is no reason to try again")
	})
}

// Servers that begin together share one stock, whichever was first, and a later one changes nothing.
func TestServersJoinOneSale(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		var all sync.WaitGroup
		for range 4 {
			s := open(t, url, atOnce)
			all.Go(func() {
				left, err := s.Join(t.Context(), "p", 2)
				assert.NoError(t, err)
				assert.EqualValues(t, 2, left)
			})
		}
		all.Wait()
		s := open(t, url, atOnce)
		require.NoError(t, s.OrderFenced(t.Context(), "p", "a", 1))
		left, err := s.Join(t.Context(), "p", 5)
		require.NoError(t, err)
		assert.EqualValues(t, 1, left)
		require.NoError(t, s.OrderFenced(t.Context(), "p", "b", 2))
		left, err = s.Join(t.Context(), "p", 5)
		require.NoError(t, err)
		assert.Zero(t, left, "sold out is an answer as well")
	})
}

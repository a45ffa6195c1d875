package fenced_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/fenced"
	"github.com/wllock/wllock/wllocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unused is a database that must not be used.
type unused struct{ t *testing.T }

func (u unused) Connect(context.Context) (driver.Conn, error) {
	u.t.Error("the database was asked")
	return nil, errors.New("unused")
}
func (u unused) Driver() driver.Driver { return nil }

func unusedGuard(t *testing.T) *fenced.Guard {
	t.Helper()
	db := sql.OpenDB(unused{t})
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	g, err := fenced.New(db, fenced.PostgreSQL)
	require.NoError(t, err)
	return g
}

func neverRuns(t *testing.T) func(context.Context, *sql.Tx) error {
	return func(context.Context, *sql.Tx) error {
		t.Error("the function has run")
		return nil
	}
}

func TestRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	g := unusedGuard(t)
	refused := func(ctx context.Context, reason error, says string, only ...fenced.Lock) {
		t.Helper()
		for _, err := range []error{g.Tx(ctx, neverRuns(t), only...), g.Claim(ctx, nil, only...)} {
			require.ErrorIs(t, err, reason)
			require.ErrorContains(t, err, says)
		}
	}
	inside := "call Tx inside Do, with the context that the function gets"
	refused(t.Context(), fenced.ErrNoHold, inside)

	l := wllocktest.New(t)
	var after context.Context
	require.NoError(t, l.Do(t.Context(), "product", "1000", func(ctx context.Context) error {
		refused(ctx, fenced.ErrNoHold, inside, fenced.For("product", "1001"))
		after = ctx
		return nil
	}))
	refused(after, fenced.ErrNoHold, "it was released")

	require.NoError(t, l.Do(t.Context(), "partner", "acme", func(ctx context.Context) error {
		refused(ctx, fenced.ErrUnordered, "without Permits")
		return nil
	}, wllock.Permits(2)))

	away, faults := wllocktest.NewWithFaults(t, wllock.WithOutage(wllock.LocalOnly), wllock.WithLeaseTTL(100*time.Millisecond))
	faults.Partition()
	require.Eventually(t, func() bool {
		return away.Do(t.Context(), "product", "1000", func(ctx context.Context) error {
			refused(ctx, fenced.ErrNoFence, "use FailClosed")
			return nil
		}) == nil
	}, 10*time.Second, 10*time.Millisecond)
}

// The lease has expired, and what the function gets has no end of its own: it is as a process that was paused.
func TestALostHoldIsRefused(t *testing.T) {
	t.Parallel()
	g := unusedGuard(t)
	l, faults := wllocktest.NewWithFaults(t)
	_ = l.Do(t.Context(), "product", "1000", func(ctx context.Context) error {
		faults.Lose("product", "1000")
		require.Eventually(t, func() bool { return ctx.Err() != nil }, 10*time.Second, time.Millisecond)
		require.ErrorIs(t, g.Tx(context.WithoutCancel(ctx), neverRuns(t)), wllock.ErrLeaseLost)
		return nil
	})
}

func TestKeysOfErrorsAreRedacted(t *testing.T) {
	t.Parallel()
	g := unusedGuard(t)
	l, err := wllock.New("shop", memlock.New(), wllock.WithOwnedBackend(), wllock.WithKeyRedaction(func(string) string { return "***" }))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) }()
	require.NoError(t, l.Do(t.Context(), "customer", "alice", func(ctx context.Context) error {
		err := g.Tx(ctx, neverRuns(t))
		require.ErrorIs(t, err, fenced.ErrUnordered)
		require.NotContains(t, err.Error(), "alice")
		return nil
	}, wllock.Permits(1)))
	require.NotContains(t, (&fenced.Error{Key: "shop:customer:***", Fence: 1, Known: 2}).Error(), "alice")
}

func TestBadSettings(t *testing.T) {
	t.Parallel()
	db := sql.OpenDB(unused{t})
	defer func() { require.NoError(t, db.Close()) }()
	for _, bad := range []struct {
		db      *sql.DB
		dialect fenced.Dialect
		opt     fenced.Option
		says    string
	}{
		{nil, fenced.SQLite, fenced.WithTable("t"), "db is nil"},
		{db, 0, fenced.WithTable("t"), "want PostgreSQL, MySQL or SQLite"},
		{db, fenced.MySQL, fenced.WithTable("a b"), `table "a b": want 1 to 63 letters`},
		{db, fenced.MySQL, fenced.WithTable(""), `table "": want 1 to 63 letters`},
		{db, fenced.MySQL, fenced.WithSchema("a.b"), `schema "a.b": want`},
		{db, fenced.PostgreSQL, fenced.WithLongestStatement(-1), "not negative"},
	} {
		_, err := fenced.New(bad.db, bad.dialect, bad.opt)
		require.ErrorContains(t, err, bad.says)
		if bad.db != nil {
			_, err = fenced.DDL(bad.dialect, bad.opt)
			require.ErrorContains(t, err, bad.says)
		}
	}
	text, err := fenced.DDL(fenced.MySQL, fenced.WithSchema("shop"), fenced.WithTable("fences"))
	require.NoError(t, err)
	require.Contains(t, text, "CREATE TABLE IF NOT EXISTS `shop`.`fences` (")
}

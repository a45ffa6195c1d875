package sqllock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// aged makes everything in the database older.
func aged(t *testing.T, b *Backend, by time.Duration) {
	t.Helper()
	for _, text := range []string{
		"UPDATE {locks} SET update_time = update_time - $1, expires_at = expires_at - $1, since = since - $1",
		"UPDATE {waiters} SET expires_at = expires_at - $1", "UPDATE {meta} SET expires_at = expires_at - $1",
	} {
		q := b.dialect.compile(b.st().text(text))
		_, err := b.db.ExecContext(t.Context(), q.text, q.args(micros(by))...)
		require.NoError(t, err)
	}
}

func rowsOf(t *testing.T, b *Backend, table string) (n int) {
	t.Helper()
	require.NoError(t, b.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+b.set.table(table)).Scan(&n))
	return n
}

func enter(t testing.TB, b *Backend, key string, more ...func(*distributed.Request)) distributed.Lease {
	t.Helper()
	req := distributed.Request{Key: key, Instance: "instance", TTL: time.Minute}
	for _, f := range more {
		f(&req)
	}
	l, _, err := b.Enter(t.Context(), req)
	require.NoError(t, err)
	require.NotNil(t, l)
	return l
}

// A row goes in the second pass, and the fences of its lock go on above the floor, though the clock may have been set back.
func TestReaper(t *testing.T) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t).backend(t)
			ctx := t.Context()
			l := enter(t, b, "unused")
			fence, _ := l.NextFence()
			require.NoError(t, l.Release(ctx))
			l = enter(t, b, "crashed")
			l.Abandon()
			used := enter(t, b, "used")
			future := int64(fence) + int64(24*time.Hour) // as if the clock had been set back since
			q := b.dialect.compile(b.st().text("UPDATE {locks} SET fence = $1 WHERE name = 'unused'"))
			_, err := b.db.ExecContext(ctx, q.text, q.args(future)...)
			require.NoError(t, err)

			require.NoError(t, b.reapOnce(ctx))
			require.Equal(t, 3, rowsOf(t, b, "locks"), "none is old")
			aged(t, b, 2*DefaultReapAge)
			require.NoError(t, used.(*lease).Refill(ctx)) // touches its row
			require.NoError(t, b.reapOnce(ctx))
			require.Equal(t, 3, rowsOf(t, b, "locks"), "the first pass raises the floor")
			require.NoError(t, b.reapOnce(ctx))
			require.Equal(t, 3, rowsOf(t, b, "locks"), "it is not yet time for another pass")
			aged(t, b, b.set.reapTick)
			require.NoError(t, b.reapOnce(ctx))
			require.Equal(t, 1, rowsOf(t, b, "locks"), "the one that is used")

			l = enter(t, b, "unused")
			after, ok := l.NextFence()
			require.True(t, ok)
			require.Greater(t, after, uint64(future))
			require.NoError(t, l.Release(context.Background()))
		})
	}
}

package sqllock

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// A place that nobody keeps is not counted for ever, also if the lock is held and renewed all the time.
func TestDeadWaiterOfALongLease(t *testing.T) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			a, b := d.backend(t), d.backend(t)
			ctx := t.Context()
			l := enter(t, a, "leader")
			_, _, err := b.Enter(ctx, distributed.Request{Key: "leader", Instance: "b", TTL: time.Minute})
			require.NoError(t, err)
			b.cancel() // it dies
			aged(t, a, DefaultReapAge+time.Hour)
			q := a.dialect.compile(a.st().text("UPDATE {locks} SET update_time = {now}, expires_at = {now} + $1")) // renewed
			_, err = a.db.ExecContext(ctx, q.text, q.args(micros(time.Minute))...)
			require.NoError(t, err)
			require.NoError(t, a.reapOnce(ctx))
			require.Zero(t, rowsOf(t, a, "waiters"))
			require.NoError(t, l.Release(ctx))
			require.NoError(t, enter(t, a, "leader").Release(ctx), "the lock is free, and nobody is queued")
		})
	}
}

// Processes that begin together may all create the tables.
func TestMigrateAtTheSameTime(t *testing.T) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			for _, prefix := range []string{"one", "two", "three"} {
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() {
						db := d.open()
						defer func() { _ = db.Close() }()
						if err := Migrate(t.Context(), db, d.dialect, WithTable(prefix)); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
			}
		})
	}
}

package sqllock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testscope"
)

// The application has the only connection of the pool for as long as it likes, inside the lock: renewals wait in vain, so the lease
// is lost when its time has passed, and calls are answered by their deadlines. Once the connection is back, all goes on.
func TestApplicationHasTheOnlyConnection(t *testing.T) {
	testscope.Long(t, "takes 3 s")
	onEach(t, true, func(t *testing.T, d database) {
		db := d.pool(t, nil)
		db.SetMaxOpenConns(1)
		b, key := backendOn(t, db, d.dialect), newName("k")
		l := acquired(t, b, request(key))
		first := fence(t, l)
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, _, err = b.Enter(ctx, request(newName("k")))
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		within(t, "an Enter without a connection", time.Since(start), 100*time.Millisecond)
		lost(t, l)
		within(t, "the report of a lease that cannot be renewed", time.Since(start), faultTTL)
		require.NoError(t, tx.Rollback())
		again := acquired(t, b, request(key))
		require.Greater(t, fence(t, again), first)
		release(t, again)
	})
}

// An application that gives the connection back in time notices nothing.
func TestApplicationUsesTheOnlyConnectionNowAndThen(t *testing.T) {
	testscope.Long(t, "takes 4 s")
	onEach(t, true, func(t *testing.T, d database) {
		db := d.pool(t, nil)
		db.SetMaxOpenConns(1)
		b, key := backendOn(t, db, d.dialect), newName("k")
		l := acquired(t, b, request(key, lasting(3*faultTTL)))
		p := place(t, b, request(key, lasting(3*faultTTL)))
		for start := time.Now(); time.Since(start) < 2*faultTTL; time.Sleep(faultTTL / 20) { // longer than the claim window
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			time.Sleep(faultTTL / 20)
			require.NoError(t, tx.Rollback())
		}
		require.False(t, distributed.Over(time.Now(), l.Until()), "it is renewed")
		release(t, l)
		release(t, granted(t, p))
	})
}

package sqllock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// lockRow locks a row, as a process does that stands still in the middle of a transaction.
func lockRow(t *testing.T, b *Backend, key string) {
	t.Helper()
	tx, err := b.db.BeginTx(context.Background(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	q := b.dialect.compile(b.st().text("SELECT owner FROM {locks} WHERE name = $1 FOR UPDATE"))
	var owner string
	require.NoError(t, tx.QueryRow(q.text, q.args(key)...).Scan(&owner))
}

// stuckTTL is long enough for a busy machine.
const stuckTTL = 6 * time.Second

// A lease whose row is locked expires; those that share its renewals do not.
func TestRowThatStaysLockedCostsItsLeaseOnly(t *testing.T) {
	testscope.Long(t, "waits for leases to end")
	onServers(t, func(t *testing.T, d *database) {
		b, brief := d.backend(t), lasting(stuckTTL)
		first, stuck, last := enter(t, b, "a", brief), enter(t, b, "k", brief), enter(t, b, "z", brief)
		lockRow(t, d.backend(t), "k")
		ended(t, stuck)
		time.Sleep(stuckTTL)
		require.True(t, first.Healthy() && last.Healthy())
	})
}

// A lock that is free and cannot be taken holds up no other lock's hand-over, also if many wait for it.
func TestRowThatStaysLockedHoldsUpNoHandOver(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		t.Run("lock", func(t *testing.T) { handOverBesideALockedRow(t, d, 1, writing) })
		t.Run("permits", func(t *testing.T) { handOverBesideALockedRow(t, d, 2*DefaultParallel, permits(100)) })
	})
}

func handOverBesideALockedRow(t *testing.T, d *database, n int, as testlocker.Change) {
	a, b, key := d.backend(t), d.backend(t), fmt.Sprint("k", n)
	stuck, other := enter(t, a, key, lastingLong), enter(t, a, key+" other", lastingLong) // half of that a transaction waits for the row
	for i := range n {
		queue(t, b, key, lastingLong, by(fmt.Sprint(i)), as)
	}
	p := queue(t, b, key+" other", lastingLong)
	stuck.Abandon()
	c := d.backend(t)
	run(t, c, "UPDATE {locks} SET expires_at = {now} WHERE name = $1", key)
	lockRow(t, c, key)
	require.Eventually(t, func() bool { return changing(b, key) }, time.Minute, time.Millisecond, "it is tried")
	free(t, other)
	require.NotNil(t, awaited(t, p))
	require.True(t, changing(b, key), "it is stuck")
}

func changing(b *Backend, name string) bool {
	for _, a := range b.known.of(name) {
		a.Wire.mu.Lock()
		is := a.Wire.changing
		a.Wire.mu.Unlock()
		if is {
			return true
		}
	}
	return false
}

// Many calls wait for a lock with permits whose row is locked; those for other locks pass the gate.
func TestRowThatStaysLockedLeavesPlacesToOtherCalls(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		enter(t, b, "k", permits(100))
		lockRow(t, d.backend(t), "k")
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for i := range 2 * DefaultParallel {
			calls.Go(func() {
				_, _, err := try(ctx, b, "k", permits(100), by(fmt.Sprint(i)))
				assert.ErrorIs(t, err, context.Canceled)
			})
		}
		wait := func() bool { return len(b.known.of("k")) == 2*DefaultParallel+1 && len(b.gates.all) > 1 }
		require.Eventually(t, wait, time.Minute, time.Millisecond)
		for i := range 3 * DefaultParallel {
			enter(t, b, fmt.Sprint("other", i))
		}
		cancel()
		calls.Wait()
	})
}

// A call that waits for the release of its lease before, whose row is locked, keeps no place from calls for other locks.
func TestWaitingForAReleaseTakesNoPlaceAtTheGate(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		b := d.backend(t, WithParallel(1))
		l := enter(t, b, "k")
		lockRow(t, d.backend(t), "k")
		sent := make(chan struct{}, 1)
		d.wire.logTo(func(string) { signal(sent) })
		l.StartRelease()
		<-sent // no Enter can have the release any more
		d.wire.filtered(nil)
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() {
			_, _, err := try(ctx, b, "k", prevIs(l))
			waited <- err
		}()
		require.Never(t, func() bool { return len(b.gates.all) > 0 }, 100*time.Millisecond, time.Millisecond)
		enter(t, b, "other")
		cancel()
		require.ErrorIs(t, <-waited, context.Canceled)
	})
}

// Releases that share a statement with one whose row is locked get through. Many permits whose row is locked wait for it together, and
// releases of other locks do not.
func TestRowThatStaysLockedHoldsUpNoRelease(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		for name, n := range map[string]int{"lock": 1, "permits": maxBatch} {
			t.Run(name, func(t *testing.T) {
				b, as := d.backend(t), map[bool]testlocker.Change{true: permits(n), false: writing}[n > 1]
				var stuck, others []distributed.Lease
				for i := range n {
					stuck = append(stuck, enter(t, b, name+" k", as, by(fmt.Sprint(i))))
				}
				lockRow(t, d.backend(t), name+" k")
				for _, key := range []string{" a", " b", " y", " z"} {
					others = append(others, enter(t, b, name+key))
				}
				start := time.Now()
				for _, l := range append(stuck, others...) {
					l.StartRelease()
				}
				for _, l := range others {
					free(t, l)
				}
				testscope.InTime(t, time.Since(start), 8*time.Second, "the releases of other locks") // one after the other they take a minute
			})
		}
	})
}

// A statement that asks for each column whether the lock is free has one time for all of them.
func TestOneTimeDecidesAllColumns(t *testing.T) {
	s, err := newSettings(PostgreSQL, nil)
	require.NoError(t, err)
	require.NotContains(t, s.fill(newStatements(PostgreSQL, &s).queueUp.text), "expires_at <= "+postgresNow)
}

// Somebody deletes rows by hand: of waiters, which the next lock counts anew, and of all tables. Fences grow all the same.
func TestRowsDeletedByHand(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		l := enter(t, b, "k")
		first := fenceOf(t, l)
		free(t, l)
		run(t, b, "UPDATE {locks} SET queued = 3, ticket = 3 WHERE name = 'k'") // as three that waited would have left it
		free(t, acquired(t, b, "k"))
		var queued int
		ask(t, b, "SELECT queued FROM {locks} WHERE name = 'k'", &queued)
		require.Zero(t, queued)
		for _, table := range []string{"locks", "waiters", "meta"} {
			run(t, b, "DELETE FROM {"+table+"}")
		}
		l = acquired(t, b, "k")
		require.Greater(t, fenceOf(t, l), first)
		free(t, l)
	})
}

// Whoever loses a lease because the database refuses the renewal reads what the database has said.
func TestALossHasTheWordsOfTheDatabase(t *testing.T) {
	eachBackend(t, func(t *testing.T, d *database, b *Backend) {
		brief := lasting(2 * time.Second)
		leases := []distributed.Lease{enter(t, b, "a", brief), enter(t, b, "b", brief)} // which share a statement
		_, err := d.pool(t).Exec("ALTER TABLE wllock_locks RENAME TO elsewhere")
		require.NoError(t, err)
		for _, l := range leases {
			ended(t, l)
			err := distributed.LossOf(l)
			require.ErrorContains(t, err, "sqllock: renew: refused: the tables are missing")
			require.ErrorContains(t, err, "wllock_locks")
		}
	})
}

package sqllock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testscope"
)

// stuckTTL is long enough for a busy machine.
const stuckTTL = 6 * time.Second

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

func onEachServer(t *testing.T, test func(t *testing.T, d *database)) {
	for name, open := range databases {
		if name == "sqlite" {
			continue // a file
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func lasting(r *distributed.Request) { r.TTL = stuckTTL }

// A lease whose row is locked expires; those that share its renewals do not.
func TestRowThatStaysLockedCostsItsLeaseOnly(t *testing.T) {
	testscope.Long(t, "waits for leases to end")
	onEachServer(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		first, stuck, last := enter(t, b, "a", lasting), enter(t, b, "k", lasting), enter(t, b, "z", lasting)
		lockRow(t, d.backend(t), "k")
		select {
		case <-stuck.Lost():
		case <-time.After(time.Minute):
			t.Fatal("the row is not locked")
		}
		time.Sleep(stuckTTL)
		for _, l := range []distributed.Lease{first, last} {
			select {
			case <-l.Lost():
				t.Error("another lease was lost")
			default:
			}
		}
	})
}

// A lock that is free and cannot be taken holds up no other lock's hand-over.
func TestRowThatStaysLockedHoldsUpNoHandOver(t *testing.T) {
	onEachServer(t, func(t *testing.T, d *database) {
		a, b := d.backend(t), d.backend(t)
		long := func(r *distributed.Request) { r.TTL = time.Minute }
		stuck, other := enter(t, a, "k", long), enter(t, a, "other", long)
		var places []distributed.Place
		for _, key := range []string{"k", "other"} {
			_, p, err := b.Enter(t.Context(), distributed.Request{Key: key, Instance: "b", TTL: time.Minute})
			require.NoError(t, err)
			require.NotNil(t, p)
			places = append(places, p)
		}
		stuck.Abandon()
		q := b.dialect.compile(b.st().text("UPDATE {locks} SET expires_at = {now} WHERE name = $1"))
		c := d.backend(t)
		tx, err := c.db.BeginTx(t.Context(), nil) // it changes the row and locks it
		require.NoError(t, err)
		_, err = tx.Exec(q.text, q.args("k")...)
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		lockRow(t, c, "k")
		require.Eventually(t, func() bool { return changing(b, "k") }, time.Minute, time.Millisecond, "it is tried")
		require.NoError(t, other.Release(t.Context()))
		select {
		case l := <-places[1].Granted():
			require.NotNil(t, l)
			require.True(t, changing(b, "k"), "it is stuck")
		case <-time.After(time.Minute):
			t.Error("no hand-over")
		}
	})
}

func changing(b *Backend, name string) bool {
	for _, a := range b.of(name) {
		a.mu.Lock()
		is := a.changing
		a.mu.Unlock()
		if is {
			return true
		}
	}
	return false
}

// Releases that share a statement with one whose row is locked get through.
func TestRowThatStaysLockedHoldsUpNoRelease(t *testing.T) {
	onEachServer(t, func(t *testing.T, d *database) {
		a, b := d.backend(t), d.backend(t)
		var leases []distributed.Lease
		keys := []string{"k", "a", "b", "y", "z"}
		for _, key := range keys {
			leases = append(leases, enter(t, a, key))
		}
		lockRow(t, b, "k")
		for _, l := range leases {
			l.(distributed.AsyncLease).StartRelease()
		}
		for _, key := range keys[1:] {
			require.Eventually(t, func() bool {
				l, _, err := b.Enter(t.Context(), distributed.Request{Key: key, Instance: "b", TTL: time.Minute, NoWait: true})
				return err == nil && l != nil
			}, 30*time.Second, 20*time.Millisecond, key)
		}
	})
}

// PostgreSQL ends the transaction of a process that stands still in it, and the row is another's.
func TestRowOfAProcessThatStandsStillIsFreed(t *testing.T) {
	testscope.Long(t, "kills processes, and waits for what they held")
	b := newPostgres(t).backend(t)
	enter(t, b, "k")
	tx, err := b.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = b.read(t.Context(), tx, "k")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return b.change(ctx, "k", func(s *state) {}) == nil
	}, time.Minute, time.Second)
}

// A statement that asks for each column whether the lock is free has one time for all of them.
func TestOneTimeDecidesAllColumns(t *testing.T) {
	s, err := newSettings(PostgreSQL, nil)
	require.NoError(t, err)
	require.NotContains(t, s.fill(newStatements(PostgreSQL, &s).queueUp.text), "expires_at <= "+postgresNow)
}

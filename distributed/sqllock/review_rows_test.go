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
	t.Helper()
	each(t, func(t *testing.T, d *database) {
		if d.dialect != SQLite {
			test(t, d)
		}
	})
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

// A lock that is free and cannot be taken holds up no other lock's hand-over, also if many wait for it.
func TestRowThatStaysLockedHoldsUpNoHandOver(t *testing.T) {
	onEachServer(t, func(t *testing.T, d *database) {
		t.Run("lock", func(t *testing.T) { handOverBesideALockedRow(t, d, 1, func(*distributed.Request) {}) })
		t.Run("permits", func(t *testing.T) {
			handOverBesideALockedRow(t, d, 2*DefaultParallel, func(r *distributed.Request) { r.Mode, r.Limit = distributed.Shared, 100 })
		})
	})
}

func handOverBesideALockedRow(t *testing.T, d *database, n int, change func(*distributed.Request)) {
	a, b, key := d.backend(t), d.backend(t), fmt.Sprint("k", n)
	long := func(r *distributed.Request) { r.TTL = 10 * time.Minute } // half of that a transaction waits for the row
	stuck, other := enter(t, a, key, long), enter(t, a, key+" other", long)
	for i := range n {
		req := distributed.Request{Key: key, Instance: fmt.Sprint(i)}
		change(&req)
		queue(t, b, req, long)
	}
	p := queue(t, b, distributed.Request{Key: key + " other", Instance: "b"}, long)
	stuck.Abandon()
	q := b.dialect.compile(b.st().text("UPDATE {locks} SET expires_at = {now} WHERE name = $1"))
	c := d.backend(t)
	tx, err := c.db.BeginTx(t.Context(), nil) // it changes the row and locks it
	require.NoError(t, err)
	_, err = tx.Exec(q.text, q.args(key)...)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	lockRow(t, c, key)
	require.Eventually(t, func() bool { return changing(b, key) }, time.Minute, time.Millisecond, "it is tried")
	require.NoError(t, other.Release(t.Context()))
	select {
	case l := <-p.Granted():
		require.NotNil(t, l)
		require.True(t, changing(b, key), "it is stuck")
	case <-time.After(time.Minute):
		t.Error("no hand-over")
	}
}

func queue(t *testing.T, b *Backend, req distributed.Request, change func(*distributed.Request)) distributed.Place {
	t.Helper()
	change(&req)
	_, p, err := b.Enter(t.Context(), req)
	require.NoError(t, err)
	require.NotNil(t, p)
	return p
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
	onEachServer(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		permit := func(r *distributed.Request) { r.Mode, r.Limit = distributed.Shared, 100 }
		enter(t, b, "k", permit)
		lockRow(t, d.backend(t), "k")
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for i := range 2 * DefaultParallel {
			calls.Go(func() {
				req := distributed.Request{Key: "k", Instance: fmt.Sprint(i), TTL: time.Minute}
				permit(&req)
				_, _, err := b.Enter(ctx, req)
				assert.ErrorIs(t, err, context.Canceled)
			})
		}
		require.Eventually(t, func() bool { return len(b.known.of("k")) == 2*DefaultParallel+1 && len(b.gates.all) > 1 }, time.Minute, time.Millisecond)
		for i := range 3 * DefaultParallel {
			within, done := context.WithTimeout(t.Context(), 20*time.Second)
			l, _, err := b.Enter(within, distributed.Request{Key: fmt.Sprint("other", i), Instance: "i", TTL: time.Minute})
			done()
			require.NoError(t, err)
			require.NotNil(t, l)
		}
		cancel()
		calls.Wait()
	})
}

// A call that waits for the release of its lease before, whose row is locked, keeps no place from calls for other locks.
func TestWaitingForAReleaseTakesNoPlaceAtTheGate(t *testing.T) {
	onEachServer(t, func(t *testing.T, d *database) {
		b := d.backend(t, WithParallel(1))
		l := enter(t, b, "k")
		lockRow(t, d.backend(t), "k")
		sent := make(chan struct{}, 1)
		d.wire.logTo(func(string) { signal(sent) })
		l.(distributed.AsyncLease).StartRelease()
		<-sent // no Enter can have the release any more
		d.wire.logTo(nil)
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() {
			_, _, err := b.Enter(ctx, distributed.Request{Key: "k", Instance: "instance", TTL: time.Minute, Prev: l})
			waited <- err
		}()
		require.Never(t, func() bool { return len(b.gates.all) > 0 }, 100*time.Millisecond, time.Millisecond)
		require.NotNil(t, enter(t, b, "other"))
		cancel()
		require.ErrorIs(t, <-waited, context.Canceled)
	})
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

// Many permits of a lock whose row is locked are released: they wait for it together, and releases of other locks do not.
func TestRowThatStaysLockedHoldsUpReleasesOfItsPermitsOnly(t *testing.T) {
	onEachServer(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		var leases []distributed.Lease
		for i := range maxBatch {
			leases = append(leases, enter(t, b, "k", func(r *distributed.Request) {
				r.Mode, r.Limit, r.Instance = distributed.Shared, maxBatch, fmt.Sprint(i)
			}))
		}
		var others []distributed.Lease
		for i := range 4 {
			others = append(others, enter(t, b, fmt.Sprint("other", i)))
		}
		lockRow(t, d.backend(t), "k")
		start := time.Now()
		for _, l := range append(leases, others...) {
			l.(distributed.AsyncLease).StartRelease()
		}
		for _, l := range others {
			require.NoError(t, l.Release(t.Context()))
		}
		testscope.InTime(t, time.Since(start), 8*time.Second, "the releases of other locks") // one after the other they take a minute
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
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		run := func(text string) {
			_, err := b.db.ExecContext(t.Context(), b.st().text(text))
			require.NoError(t, err)
		}
		l := enter(t, b, "k")
		first, _ := l.NextFence()
		require.NoError(t, l.Release(t.Context()))
		run("UPDATE {locks} SET queued = 3, ticket = 3 WHERE name = 'k'") // as three that waited would have left it
		l = waitFor(t, b, "k")
		require.NoError(t, l.Release(t.Context()))
		var queued int
		require.NoError(t, one(t.Context(), b.db, b.st().text("SELECT queued FROM {locks} WHERE name = 'k'"), nil, &queued))
		require.Zero(t, queued)

		for _, table := range []string{"locks", "waiters", "meta"} {
			run("DELETE FROM {" + table + "}")
		}
		l = waitFor(t, b, "k")
		fence, _ := l.NextFence()
		require.Greater(t, fence, first)
		require.NoError(t, l.Release(t.Context()))
	})
}

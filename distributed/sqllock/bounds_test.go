package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/dbtest"
)

// afterEach has check called before each statement but the first that goes over the wire, in the order in which they are sent.
func afterEach(w *wire, check func(text string)) {
	var mu sync.Mutex
	first := true
	w.logTo(func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if !first {
			check(text)
		}
		first = false
	})
}

// free reports that a row is not locked by anybody.
func free(t *testing.T, b *Backend, table, where string) bool {
	t.Helper()
	tx, err := b.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	return assert.NoError(t, tx.QueryRow(b.st().text("SELECT ttl FROM {"+table+"} WHERE "+where+" FOR UPDATE NOWAIT")).Scan(new(int64)))
}

// A process that stands still between two statements of a renewal of several leases, or of their release, keeps no row locked: one that never goes
// on would keep the locks for as long as the server keeps its connection.
func TestStandingStillInARenewalKeepsNoLock(t *testing.T) {
	onEachServer(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		var owners, seats []*attempt
		for i := range 3 {
			key := fmt.Sprint("k", i)
			owners = append(owners, driver.AttemptOf[ours](enter(t, b, key)))
			enter(t, b, "readers", func(r *distributed.Request) { r.Mode = distributed.Shared })
		}
		for _, a := range b.known.of("readers") {
			if a.Wire.seat {
				seats = append(seats, a)
			}
		}
		require.Len(t, seats, 2)
		between := &database{d.dialect, d.connector, &wire{}} // its backend has nothing else to say
		still := between.backend(t)
		afterEach(between.wire, func(text string) {
			for i := range owners {
				require.True(t, free(t, b, "locks", fmt.Sprintf("name = 'k%d'", i)), text)
			}
			for _, a := range seats {
				require.True(t, free(t, b, "waiters", "token = '"+a.Wire.token+"'"), text)
			}
		})
		renewed, err := still.renewFree(t.Context(), owners)
		require.NoError(t, err)
		require.Len(t, renewed, 3)
		renewed, err = still.renewFree(t.Context(), seats)
		require.NoError(t, err)
		require.Len(t, renewed, 2)
		found, err := still.releaseUnlocked(t.Context(), owners)
		require.NoError(t, err)
		require.Len(t, found, 3)
	})
}

// Of several leases those are renewed, and those are released, whose rows nobody has locked; the others are known.
func TestRenewalAndReleaseLeaveOutLockedRows(t *testing.T) {
	onEachServer(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		var leases []*attempt
		for _, key := range []string{"a", "k", "z"} {
			leases = append(leases, driver.AttemptOf[ours](enter(t, b, key)))
		}
		gone := enter(t, b, "gone")
		require.NoError(t, gone.Release(t.Context()))
		leases = append(leases, driver.AttemptOf[ours](gone))
		lockRow(t, d.backend(t), "k")
		renewed, err := b.renewFree(t.Context(), leases)
		require.NoError(t, err)
		require.Len(t, renewed, 2)
		require.NotContains(t, renewed, leases[1].Wire.token)
		found, err := b.releaseUnlocked(t.Context(), leases)
		require.NoError(t, err)
		require.Equal(t, map[string]bool{"a": true, "k": false, "z": true, "gone": false}, found)
		for i, stuck := range []bool{false, true, false, false} {
			require.Equal(t, stuck, leases[i].Wire.stuck, i)
		}
	})
}

// A process stops while it queues for a lock, with the row locked. The server ends its transaction, and the holder keeps its lease.
func TestStandingStillInTheQueueCostsTheHolderNothing(t *testing.T) {
	onEachServer(t, func(t *testing.T, d *database) {
		holder, still := d.backend(t), d.backend(t)
		l := enter(t, holder, "k", lasting)
		time.Sleep(stuckTTL / 3) // it is claimed: what it can lose is T
		err := still.inTransaction(t.Context(), func(q querier) error {
			_, err := still.read(t.Context(), q, "k")
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return holder.change(ctx, "k", func(*state) {}) == nil
			}, time.Minute, time.Millisecond)
			return nil
		})
		require.Error(t, err, "the server has ended the transaction")
		select {
		case <-l.Lost():
			t.Error("the holder has lost its lease")
		default:
		}
	})
}

// The session of an application's connection has its own settings after a transaction, however it has ended.
func TestTransactionLeavesTheSessionAsItWas(t *testing.T) {
	b := newMariaDB(t).backend(t)
	b.db.SetMaxOpenConns(1)
	_, err := b.db.Exec("SET SESSION wait_timeout = 77, SESSION innodb_lock_wait_timeout = 33")
	require.NoError(t, err)
	for _, end := range []error{nil, errProbed} {
		err := b.inTransaction(t.Context(), func(q querier) error {
			_, err := q.ExecContext(t.Context(), b.st().text("INSERT INTO {meta} (name, value) VALUES ('note', 1)"))
			require.NoError(t, err)
			return end
		})
		require.ErrorIs(t, err, end)
		var autocommit, wait, lock, rows int
		require.NoError(t, b.db.QueryRow(b.st().text("SELECT @@autocommit, @@wait_timeout, @@innodb_lock_wait_timeout, (SELECT COUNT(*) FROM {meta} WHERE name = 'note')")).
			Scan(&autocommit, &wait, &lock, &rows))
		require.Equal(t, [3]int{1, 77, 33}, [3]int{autocommit, wait, lock})
		if end == nil {
			require.Equal(t, 1, rows, "it is committed")
			_, err = b.db.Exec(b.st().text("DELETE FROM {meta} WHERE name = 'note'"))
			require.NoError(t, err)
		} else {
			require.Zero(t, rows, "it is rolled back")
		}
	}
}

// A connection that the server has closed while it was idle costs a transaction nothing.
func TestTransactionPassesOverClosedConnections(t *testing.T) {
	d := newMariaDB(t)
	b := d.backend(t)
	b.db.SetMaxIdleConns(8)
	other := d.open()
	defer func() { _ = other.Close() }()
	var conns []*sql.Conn
	for range 8 {
		c, err := b.db.Conn(t.Context())
		require.NoError(t, err)
		var id int
		require.NoError(t, c.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
		_, err = other.Exec(fmt.Sprint("KILL ", id))
		require.NoError(t, err)
		conns = append(conns, c)
	}
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
	require.NoError(t, b.inTransaction(t.Context(), func(querier) error { return nil }))
}

// A row that somebody keeps locked takes one connection of the server at most, and not one for each try: MySQL goes on waiting for it when the
// client has gone, and PostgreSQL's driver asks the server to stop.
func TestTriesForALockedRowDoNotPileUp(t *testing.T) {
	for name, waits := range dbtest.Tested(map[string]struct {
		query string
		most  int
	}{
		// the first, and one that is removed
		"mariadb":  {"SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE '%wllock_locks%'", 2},
		"postgres": {"SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()", 0},
	}) {
		t.Run(name, func(t *testing.T) {
			d := databases[name](t)
			b, other := d.backend(t), d.backend(t)
			require.NoError(t, enter(t, b, "k").Release(t.Context()))
			lockRow(t, other, "k")
			for i := range 5 {
				_, _, err := b.Enter(t.Context(), distributed.Request{Key: "k", Instance: "i", TTL: time.Second}) // for half of that
				require.ErrorIs(t, err, distributed.ErrUnavailable)
				if i == 0 && d.dialect == MySQL {
					require.Eventually(t, func() bool { return b.stuck.has("k") }, 30*time.Second, time.Millisecond)
				}
			}
			const readAnew = 300 * time.Millisecond // MariaDB answers from what it has kept to who asks within 100 ms of the last answer
			require.Eventually(t, func() bool {     // they have waited for 50 s without
				var waiting int
				require.NoError(t, other.db.QueryRow(waits.query).Scan(&waiting))
				return waiting <= waits.most
			}, 30*time.Second, readAnew)
		})
	}
}

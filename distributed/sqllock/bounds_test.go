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

// isUnlocked reports that a row is not locked by anybody.
func isUnlocked(t *testing.T, b *Backend, table, where string) bool {
	t.Helper()
	tx, err := b.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	return assert.NoError(t, tx.QueryRow(b.st().text("SELECT ttl FROM {"+table+"} WHERE "+where+" FOR UPDATE NOWAIT")).Scan(new(int64)))
}

// A process that stands still between two statements of a renewal of several leases, or of their release, keeps no row locked: one that never goes
// on would keep the locks for as long as the server keeps its connection.
func TestStandingStillInARenewalKeepsNoLock(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		var owners, seats []*attempt
		for i := range 3 {
			key := fmt.Sprint("k", i)
			owners = append(owners, driver.AttemptOf[ours](enter(t, b, key)))
			enter(t, b, "readers", reading)
		}
		for _, a := range b.known.of("readers") {
			if a.Wire.seat {
				seats = append(seats, a)
			}
		}
		require.Len(t, seats, 2)
		between := d.over(d.connector) // its backend has nothing else to say
		still := between.backend(t)
		afterEach(between.wire, func(text string) {
			for i := range owners {
				require.True(t, isUnlocked(t, b, "locks", fmt.Sprintf("name = 'k%d'", i)), text)
			}
			for _, a := range seats {
				require.True(t, isUnlocked(t, b, "waiters", "token = '"+a.Wire.token+"'"), text)
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
	onServers(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		var leases []*attempt
		for _, key := range []string{"a", "k", "z"} {
			leases = append(leases, driver.AttemptOf[ours](enter(t, b, key)))
		}
		gone := enter(t, b, "gone")
		free(t, gone)
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
	onServers(t, func(t *testing.T, d *database) {
		holder, still := d.backend(t), d.backend(t)
		l := enter(t, holder, "k", lasting(stuckTTL))
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
		require.True(t, l.Healthy())
	})
}

// The session of an application's connection has its own settings after a transaction, however it has ended.
func TestTransactionLeavesTheSessionAsItWas(t *testing.T) {
	t.Parallel()
	b := newMariaDB(t).backend(t)
	b.db.SetMaxOpenConns(1)
	run(t, b, "SET SESSION wait_timeout = 77, SESSION innodb_lock_wait_timeout = 33")
	for _, end := range []error{errProbed, nil} {
		require.ErrorIs(t, b.inTransaction(t.Context(), func(q querier) error {
			_, err := q.ExecContext(t.Context(), b.st().text("INSERT INTO {meta} (name, value) VALUES ('note', 1)"))
			require.NoError(t, err)
			return end
		}), end)
		var got [4]int
		ask(t, b, "SELECT @@autocommit, @@wait_timeout, @@innodb_lock_wait_timeout, (SELECT COUNT(*) FROM {meta} WHERE name = 'note')",
			&got[0], &got[1], &got[2], &got[3])
		notes := map[bool]int{true: 1, false: 0}[end == nil] // committed, or rolled back
		require.Equal(t, [4]int{1, 77, 33, notes}, got)
	}
}

// A connection that the server has closed while it was idle costs a transaction nothing.
func TestTransactionPassesOverClosedConnections(t *testing.T) {
	t.Parallel()
	d := newMariaDB(t)
	b := d.backend(t)
	b.db.SetMaxIdleConns(8)
	var conns []*sql.Conn
	for range 8 {
		c := must(b.db.Conn(t.Context()))
		var id int
		require.NoError(t, c.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
		d.server.Exec(fmt.Sprint("KILL ", id))
		conns = append(conns, c)
	}
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
	require.NoError(t, b.inTransaction(t.Context(), func(querier) error { return nil }))
}

// A row that somebody keeps locked takes one connection of the server at most, and not one for each try: MySQL goes on waiting for it when
// the client has gone, and PostgreSQL's driver asks the server to stop.
func TestTriesForALockedRowDoNotPileUp(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		b, other := d.backend(t), d.backend(t)
		free(t, enter(t, b, "k"))
		lockRow(t, other, "k")
		for i := range 5 {
			_, _, err := try(t.Context(), b, "k", lasting(time.Second)) // for half of that
			require.ErrorIs(t, err, distributed.ErrUnavailable)
			if i == 0 && d.dialect == MySQL {
				require.Eventually(t, func() bool { return b.stuck.has("k") }, 30*time.Second, time.Millisecond)
			}
		}
		waiting, most := "pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()", 0
		if d.dialect == MySQL { // the first, and one that is removed
			waiting, most = "information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE '%wllock_locks%'", 2
		}
		const readAnew = 300 * time.Millisecond // MariaDB answers from what it has kept to who asks within 100 ms of the last answer
		require.Eventually(t, func() bool {     // they have waited for 50 s without
			var n int
			ask(t, other, "SELECT COUNT(*) FROM "+waiting, &n)
			return n <= most
		}, 30*time.Second, readAnew)
	})
}

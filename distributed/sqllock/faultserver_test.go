package sqllock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testscope"
)

func TestDatabaseIsKilledAndComesBackInTime(t *testing.T) {
	testscope.Long(t, "kills a server")
	onServers(t, func(t *testing.T, d database) {
		near, far, key := d.backend(t, nil), d.backend(t, nil), newName("k")
		l := acquired(t, near, request(key, safely))
		first := fence(t, l)
		p := place(t, far, request(key, safely))
		d.server.Kill()
		tried, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, _, err := far.Enter(tried, request(newName("k")))
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		within(t, "an Enter while the database is down", time.Since(start), 200*time.Millisecond)
		d.server.Restart()
		require.False(t, distributed.Over(time.Now(), l.Until()), "a lease outlives a restart")
		release(t, l)
		next := granted(t, p)
		require.NotNil(t, next, "a place outlives a restart")
		require.Greater(t, fence(t, next), first)
		release(t, next)
	})
}

func TestDatabaseIsAwayForLongerThanALease(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	onServers(t, func(t *testing.T, d database) {
		near, far, key := d.backend(t, nil), d.backend(t, nil), newName("k")
		l := acquired(t, near, request(key))
		first := fence(t, l)
		p := place(t, far, request(key))
		d.server.Kill()
		start := time.Now()
		lost(t, l)
		within(t, "the report of a lease that cannot be renewed", time.Since(start), faultTTL)
		time.Sleep(time.Until(start.Add(faultTTL)))
		d.server.Restart()
		start = time.Now()
		next := granted(t, p)
		if next == nil { // its place has expired as well
			next = acquired(t, far, request(key))
		}
		within(t, "a grant after the database has come back", time.Since(start), distributed.HeartbeatInterval(faultTTL))
		require.Greater(t, fence(t, next), first)
	})
}

func TestDatabaseStandsStill(t *testing.T) {
	testscope.Long(t, "stops processes or servers, and waits")
	onServers(t, func(t *testing.T, d database) {
		near, far, key := d.backend(t, nil), d.backend(t, nil), newName("k")
		l := acquired(t, near, request(key))
		first := fence(t, l)
		p := place(t, far, request(key))
		d.server.Pause()
		start := time.Now()
		lost(t, l)
		within(t, "the report of a lease that cannot be renewed", time.Since(start), faultTTL)
		tried, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		start = time.Now()
		_, _, err := near.Enter(tried, request(key))
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		within(t, "an Enter while the database stands still", time.Since(start), 200*time.Millisecond)
		d.server.Resume()
		next := granted(t, p)
		if next == nil {
			next = acquired(t, far, request(key))
		}
		require.Greater(t, fence(t, next), first)
	})
}

// The database refuses to write, as it does when its disk is full or it is a replica.
func TestDatabaseIsReadOnly(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	onServers(t, func(t *testing.T, d database) {
		set := map[sqllock.Dialect]func(on string){
			sqllock.PostgreSQL: func(on string) {
				d.server.Exec("ALTER SYSTEM SET default_transaction_read_only = " + on)
				d.server.Exec("SELECT pg_reload_conf()")
				require.Eventually(t, func() bool { return d.server.Exec("SHOW default_transaction_read_only") == on }, forever, time.Millisecond)
			},
			sqllock.MySQL: func(on string) { d.server.Exec("SET GLOBAL read_only = " + on) },
		}[d.dialect]
		db := poolOf(t, connectorOf(plainUser(d)))
		db.SetMaxIdleConns(0) // what a session was told when it began does not count
		b, key := backendOn(t, db, d.dialect), newName("k")
		l := acquired(t, b, request(key))
		set("on")
		start := time.Now()
		_, _, err := b.Enter(t.Context(), request(newName("k")))
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		require.ErrorIs(t, err, distributed.ErrRefused, "the database answers")
		within(t, "the refusal of a request", time.Since(start), 0)
		require.ErrorIs(t, b.Ping(t.Context()), distributed.ErrRefused)
		lost(t, l)
		set("off")
		l = acquired(t, b, request(key))
		release(t, l)
	})
}

// plainUser returns the URL of a user that has the rights that sqllock asks for, and no more. A user with all rights may write to
// a database that is read-only.
func plainUser(d database) string {
	tables := "wllock_locks, wllock_waiters, wllock_meta"
	if d.dialect == sqllock.PostgreSQL {
		d.server.Exec("CREATE USER plain PASSWORD 'plain'; GRANT SELECT, INSERT, UPDATE, DELETE ON " + tables + " TO plain")
	} else {
		d.server.Exec("CREATE USER plain@'127.0.0.1' IDENTIFIED BY 'plain'")
		for _, table := range []string{"wllock_locks", "wllock_waiters", "wllock_meta"} {
			d.server.Exec("GRANT SELECT, INSERT, UPDATE, DELETE ON " + d.server.Database + "." + table + " TO plain@'127.0.0.1'")
		}
	}
	return d.server.URLFor(d.server.Addr, "plain", "plain")
}

// A server that has no connection left refuses new ones. Nothing that waits or holds has one, so it goes on.
func TestServerHasNoConnectionLeft(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	onServers(t, func(t *testing.T, d database) {
		db := d.pool(t, nil)
		db.SetMaxOpenConns(3)
		near, far, key := backendOn(t, db, d.dialect), backendOn(t, db, d.dialect), newName("k")
		l := acquired(t, near, request(key, safely))
		p := place(t, far, request(key, safely))
		greedy := d.pool(t, nil)
		var kept []interface{ Close() error }
		for len(kept) < 100 {
			c, err := greedy.Conn(t.Context())
			if err != nil {
				break
			}
			kept = append(kept, c)
		}
		require.Less(t, len(kept), 20)
		_, _, err := d.backend(t, nil).Enter(t.Context(), request(newName("k")))
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		for _, c := range kept {
			require.NoError(t, c.Close())
		}
		require.NoError(t, greedy.Close())
		release(t, l)
		release(t, granted(t, p))
	}, dbtest.Set("max_connections", "15"))
}

package sqllock

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

var (
	lastingShort = lasting(ttl)
	lastingLong  = lasting(10 * time.Minute)
)

// isUnavailable has a call that may take so long be answered in time, that the database is away. One that may take no time need not say it.
func isUnavailable(t *testing.T, b *Backend, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	start := time.Now()
	_, _, err := try(ctx, b, "another")
	require.Error(t, err)
	if within > 0 {
		require.ErrorIs(t, err, distributed.ErrUnavailable)
	}
	testscope.InTime(t, time.Since(start), within+slack, "an Enter while the database is away")
}

// regained has a waiter get the lock, anew if its place has expired as well.
func regained(t *testing.T, b *Backend, key string, p distributed.Place, old uint64) {
	t.Helper()
	next := awaited(t, p)
	if next == nil {
		next = acquired(t, b, key)
	}
	require.Greater(t, fenceOf(t, next), old)
	free(t, next)
}

func TestServerIsAwayForLongerThanALease(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	onOwnServers(t, func(t *testing.T, d *database) {
		isAwayForLongerThanALease(t, d, "killed", d.server.Kill, d.server.Restart)
		isAwayForLongerThanALease(t, d, "stopped", d.server.Pause, d.server.Resume)
	})
}

// isAwayForLongerThanALease: calls are answered by their deadlines. A lease that cannot be renewed is lost in time, one that lasts longer
// outlives the absence, and so does a place.
func isAwayForLongerThanALease(t *testing.T, d *database, name string, leave, back func()) {
	t.Helper()
	near, far := d.backend(t), d.backend(t)
	short, long := name+" short", name+" long"
	l, kept := enter(t, near, short, lastingShort), enter(t, near, long, lastingLong)
	old, first := fenceOf(t, l), fenceOf(t, kept)
	p, next := queue(t, far, short, lastingShort), queue(t, far, long, lastingLong)
	free(t, enter(t, near, name+" last", lastingLong)) // a crash forgets no place that is older than a grant (rule D5)
	leave()
	start := time.Now()
	for _, budget := range []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond} {
		isUnavailable(t, far, budget)
	}
	ended(t, l)
	testscope.InTime(t, time.Since(start), ttl+slack, "the report of a lease that cannot be renewed")
	time.Sleep(time.Until(start.Add(ttl)))
	back()
	start = time.Now()
	regained(t, far, short, p, old)
	testscope.InTime(t, time.Since(start), distributed.HeartbeatInterval(ttl)+slack, "a grant after the database has come back")
	require.False(t, distributed.Over(time.Now(), kept.Until()))
	free(t, kept)
	l = awaited(t, next)
	require.Greater(t, fenceOf(t, l), first)
	free(t, l)
}

// The database refuses to write, as it does when its disk is full or it is a replica.
func TestDatabaseIsReadOnly(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	onOwnServers(t, func(t *testing.T, d *database) {
		set := func(on string) { d.server.Exec("SET GLOBAL read_only = " + on) }
		if d.dialect == PostgreSQL {
			set = func(on string) {
				d.server.Exec("ALTER SYSTEM SET default_transaction_read_only = " + on)
				d.server.Exec("SELECT pg_reload_conf()")
				shown := func() bool { return d.server.Exec("SHOW default_transaction_read_only") == on }
				require.Eventually(t, shown, testlocker.Patience, time.Millisecond)
			}
		}
		db := d.over(connectorOf(accountWithout(t, d, "", ""))).pool(t) // one with all rights may write all the same
		db.SetMaxIdleConns(0)                                           // what a session was told when it began does not count
		b := backendOn(t, db, d.dialect)
		l := enter(t, b, "k", lastingShort)
		set("on")
		_, _, err := try(t.Context(), b, "another")
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		require.ErrorIs(t, err, distributed.ErrRefused, "the database answers")
		require.ErrorIs(t, b.Ping(t.Context()), distributed.ErrRefused)
		ended(t, l)
		set("off")
		free(t, acquired(t, b, "k"))
	})
}

// What waits for a standby that does not answer is what waits for the disk.
func TestGrantsWaitForTheDiskAndReleasesAndPlacesDoNot(t *testing.T) { // rule D5
	t.Parallel()
	d := newServer(t, dbtest.Postgres(t, dbtest.NoSync()))
	near, far := d.backend(t), d.backend(t)
	free(t, enter(t, far, "k")) // it makes the row, or locks it: later it knows that the row is there
	l := enter(t, near, "k", lastingLong)
	standby := func(name string) {
		d.server.Exec("ALTER SYSTEM SET synchronous_standby_names = '" + name + "'")
		d.server.Exec("SELECT pg_reload_conf()")
	}
	standby("silent")
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		other, _, err := try(ctx, near, "other")
		if err == nil {
			free(t, other)
		}
		return err != nil
	}, testlocker.Patience, time.Millisecond)
	p := queue(t, far, "k", lastingLong)
	free(t, l)
	standby("")
	free(t, awaited(t, p))
}

// A server that has no connection left refuses new ones. Nothing that waits or holds has one, so it goes on.
func TestServerHasNoConnectionLeft(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	onOwnServers(t, func(t *testing.T, d *database) {
		db := d.pool(t)
		db.SetMaxOpenConns(3)
		near, far := backendOn(t, db, d.dialect), backendOn(t, db, d.dialect)
		l, p := enter(t, near, "k"), queue(t, far, "k")
		greedy := d.pool(t)
		var taken []*sql.Conn
		for len(taken) < 100 {
			c, err := greedy.Conn(t.Context())
			if err != nil {
				break
			}
			taken = append(taken, c)
		}
		require.Less(t, len(taken), 20)
		isUnavailable(t, d.backend(t), time.Second)
		for _, c := range taken {
			require.NoError(t, c.Close())
		}
		require.NoError(t, greedy.Close())
		free(t, l)
		free(t, awaited(t, p))
	}, dbtest.Set("max_connections", "15"))
}

// A standby takes over. With one that had everything the lock and the place outlive that. What one that lags has not received is forgotten,
// also who has the lock: then two have it until the old one finds out, and a store that checks fences refuses the old one's.
func TestFailover(t *testing.T) {
	testscope.Long(t, "kills a server")
	standbys := map[string]bool{"a standby that has the lock": false, "a standby that lacks the lock": true}
	parallel(t, standbys, func(t *testing.T, _ string, lags bool) {
		d := newServer(t, dbtest.Postgres(t, dbtest.NoSync()))
		free(t, enter(t, d.backend(t), "k")) // the row is on both
		standby := d.server.Standby()
		standby.CaughtUp(d.server)
		front := testproc.NewProxy(t, d.server.Addr) // both reach the primary of the day by one address, as behind a load balancer
		through := d.over(connectorOf(d.server.URLAt(front.Addr)))
		near, far := through.backend(t), through.backend(t)
		if !lags {
			d.server.Exec("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
			d.server.Exec("SELECT pg_reload_conf()")
		}
		standby.Link.Stall(lags)
		old := enter(t, near, "k")
		first := fenceOf(t, old)
		if lags {
			standby.Promote()
			front.Forward(standby.Addr)
			next := acquired(t, far, "k")
			require.Greater(t, fenceOf(t, next), first, "fences grow, though the standby has not seen the last ones")
			ended(t, old)
			free(t, next)
			return
		}
		p := queue(t, far, "k")
		d.server.Kill()
		standby.Promote()
		standby.Exec("ALTER SYSTEM SET synchronous_standby_names = ''")
		standby.Exec("SELECT pg_reload_conf()")
		front.Forward(standby.Addr)
		testlocker.Ready(t, far)
		_, _, err := try(t.Context(), far, "k", noWait)
		require.ErrorIs(t, err, distributed.ErrHeld)
		free(t, old)
		next := awaited(t, p)
		require.Greater(t, fenceOf(t, next), first)
		free(t, next)
	})
}

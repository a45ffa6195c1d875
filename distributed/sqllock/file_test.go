package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testscope"
)

// locked has a connection of somebody else's lock the file.
func locked(t *testing.T, d *database) (unlock func()) {
	t.Helper()
	c := must(d.pool(t).Conn(t.Context()))
	exec := func(text string) {
		_, err := c.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	exec("BEGIN IMMEDIATE")
	return func() {
		exec("ROLLBACK")
		require.NoError(t, c.Close())
	}
}

func TestFileIsLockedForLongerThanALease(t *testing.T) {
	testscope.Long(t, "takes 3 s")
	t.Parallel()
	d, unlock := newSQLite(t), func() {}
	isAwayForLongerThanALease(t, d, "locked", func() { unlock = locked(t, d) }, func() { unlock() })
}

// A request whose transaction was carried out, and answered too late, is tried again by another: one statement would not know that it has
// released the lease before.
func TestALateCommitHasReleasedTheLeaseBefore(t *testing.T) {
	t.Parallel()
	d := newSQLite(t)
	b := d.backend(t)
	l := enter(t, b, "k")
	run(t, b, "UPDATE {locks} SET queued = 1 WHERE name = 'k'") // one statement does not get it
	var commits atomic.Int64
	d.wire.filtered(func(s *statement) error {
		err := s.run()
		if s.text == sqliteCommit && commits.Add(1) <= lostTries {
			return context.DeadlineExceeded
		}
		return err
	})
	next := enter(t, b, "k", prevIs(l))
	free(t, l)
	free(t, next)
	require.GreaterOrEqual(t, commits.Load(), int64(lostTries), "all of a transaction were late")
}

// A file that others write to is busy, and not away: a caller without a limit of its own waits, also when a single try would be in vain,
// in line for it as well as for the calls of its own process. One with NoWait does not.
func TestBusyFileIsWaitedFor(t *testing.T) {
	testscope.Long(t, "it waits for half of its leases' time")
	t.Parallel()
	d := newSQLite(t)
	b := d.backend(t, WithParallel(1))
	unlock := locked(t, d)
	tries := make(chan struct{}, 100)
	defer b.Observe(func(distributed.Exchange) { tries <- struct{}{} })()
	leases := lasting(4 * time.Second) // a try has a quarter of that, and so has the look that finds the file well
	entered := make(chan error, 2)
	for i := range cap(entered) {
		go func() {
			_, _, err := try(t.Context(), b, fmt.Sprint("k", i), leases)
			entered <- err
		}()
	}
	for range 6 {
		select {
		case <-tries:
		case err := <-entered:
			t.Fatalf("%v while the file is busy", err)
		}
	}
	_, _, err := try(t.Context(), b, "another", leases, noWait)
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	unlock()
	for range cap(entered) {
		require.NoError(t, <-entered)
	}
}

// The file may not be written, or may not grow, as on a full disk: what would is refused, and what is there goes on.
func TestFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	d := newSQLite(t)
	isRefused := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		require.ErrorIs(t, err, distributed.ErrRefused)
	}
	readOnly := at(d.url + "&_pragma=query_only(on)").backend(t)
	_, _, err := try(t.Context(), readOnly, "k")
	isRefused(err)
	isRefused(readOnly.Ping(t.Context()))

	var pages int
	require.NoError(t, d.pool(t).QueryRow("PRAGMA page_count").Scan(&pages))
	full := at(d.url + fmt.Sprintf("&_pragma=max_page_count(%d)", pages)).backend(t)
	l := enter(t, full, "k")
	err = nil
	for i := 0; i < 1000 && err == nil; i++ {
		_, _, err = try(t.Context(), full, fmt.Sprint("a key that takes some room in the file ", i))
	}
	isRefused(err)
	require.NoError(t, l.Refill(t.Context()))
	free(t, l)
	free(t, enter(t, full, "k"))
}

// A driver does not let go when a context ends. A caller without a deadline goes after its claim window all the same.
func TestDriverThatHeedsNoContextKeepsNoCaller(t *testing.T) {
	t.Parallel()
	d := newSQLite(t)
	b := d.backend(t)
	back := make(chan struct{})
	d.wire.filtered(func(*statement) error {
		<-back
		return errCut
	})
	hangs := time.AfterFunc(10*time.Second, func() { close(back) })
	_, _, err := try(context.Background(), b, "k", lasting(200*time.Millisecond))
	require.True(t, hangs.Stop(), "the caller has waited for the driver")
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.NotErrorIs(t, err, distributed.ErrRefused)
	close(back)
}

// After a switch-over the name leads to the new primary, and the old one, which only reads now, or a node that has left its cluster, keeps
// its connections open: they are not used for long.
func TestSwitchOverToAnotherServer(t *testing.T) {
	parallel(t, map[string]error{
		"read_only":                &mysql.MySQLError{Number: 1290, Message: "running with the --read-only option"},
		"left its cluster":         &mysql.MySQLError{Number: 1047, Message: "WSREP has not yet prepared node for application use"},
		"offline_mode":             &mysql.MySQLError{Number: 3032, Message: "The server is currently in offline mode"},
		"ProxySQL reaches nobody":  &mysql.MySQLError{Number: 9001, Message: "Max connect timeout reached while reaching hostgroup 0"},
		"shuts down":               &mysql.MySQLError{Number: 1053, Message: "Server shutdown in progress"},
		"a standby":                &pgconn.PgError{Code: "25006", Message: "cannot execute INSERT in a read-only transaction"},
		"an administrator":         &pgconn.PgError{Code: "57P01", Message: "terminating connection due to administrator command"},
		"recovers":                 &pgconn.PgError{Code: "57P03", Message: "the database system is in recovery mode"},
		"pgbouncer reaches nobody": &pgconn.PgError{Code: "08P01", Message: "server login has been failing"},
		"a pooler lost its server": &pgconn.PgError{Code: "08006", Message: "connection failure"},
	}, func(t *testing.T, what string, said error) {
		d := newSQLite(t)
		db := d.pool(t)
		const idle = 4 * lostTries // more than one request tries
		db.SetMaxIdleConns(idle)
		var conns []*sql.Conn
		for range idle {
			conns = append(conns, must(db.Conn(t.Context())))
		}
		for _, c := range conns {
			require.NoError(t, c.Close())
		}
		b := backendOn(t, db, SQLite)
		free(t, enter(t, b, "k"))
		old := d.wire.connections()
		d.wire.filtered(func(s *statement) error {
			if slices.Contains(old, s.conn) && (what != "read_only" || !strings.HasPrefix(s.text, "SELECT")) {
				return said
			}
			return s.run()
		})
		_, _, err := try(t.Context(), b, "k")
		require.Error(t, err)
		require.Equal(t, effectOf(said) == unable, errors.Is(err, distributed.ErrRefused), "an answer, no silence: %v", err)
		isOpen := func(c *wireConn) bool { return !c.dead.Load() }
		require.Eventually(t, func() bool { return !slices.ContainsFunc(old, isOpen) }, time.Minute, time.Millisecond, "the first refusal is enough")
		free(t, enter(t, b, "k"))
	})
}

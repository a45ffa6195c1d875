package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main(m)) }

// The certificate of a server has to be for the host of the URL.
func TestCertificateIsForTheHost(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]string{
		"mysql://u@db.example:3306/shop?tls=true": "db.example", "mysql://u:p@db.example/shop?tls=true": "db.example",
		"mysql://u@[::1]:3306/shop?tls=true": "::1", "mysql://u@127.0.0.1/shop?tls=true": "127.0.0.1",
	} {
		c, err := parse(rawURL)
		require.NoError(t, err, rawURL)
		require.Equal(t, want, c.config.TLS.ServerName, rawURL)
		require.False(t, c.config.TLS.InsecureSkipVerify, rawURL)
	}
}

// settingsOf are those that a lock relies on, as a session has them.
func settingsOf(t *testing.T, db *sql.DB) (settings [10]string) {
	t.Helper()
	defer func() { require.NoError(t, db.Close()) }()
	s := &settings
	require.NoError(t, db.QueryRow("SELECT @@autocommit, @@completion_type, @@character_set_client, @@character_set_connection, "+
		"@@sql_safe_updates, @@sql_select_limit, @@sql_big_selects, @@sql_mode, @@innodb_lock_wait_timeout, @@wait_timeout LIMIT 1").
		Scan(&s[0], &s[1], &s[2], &s[3], &s[4], &s[5], &s[6], &s[7], &s[8], &s[9]))
	return settings
}

// What a lock relies on is set in every session, whatever the server and the URL say; how long a session may wait is the URL's, and
// the server's for OpenDB.
func TestSessionsAreSet(t *testing.T) {
	t.Parallel()
	url := dbtest.SharedMariaDB(t).URL()
	wrong := "?autocommit=0&completion_type=1&character_set_connection=latin1&charset=utf8&sql_safe_updates=1&sql_select_limit=1&" +
		"sql_big_selects=0&sql_mode='ORACLE'"
	open := func(query string, bounded bool) [10]string {
		c, err := parse(url + query)
		require.NoError(t, err)
		if bounded {
			c = c.bounded()
		}
		return settingsOf(t, c.open())
	}
	want := func(row, idle string) [10]string {
		return [...]string{"1", "NO_CHAIN", "utf8mb4", "utf8mb4", "0", "18446744073709551615", "1", "STRICT_TRANS_TABLES", row, idle}
	}
	require.Equal(t, want("1", "40"), open(wrong, true))
	require.Equal(t, want("7", "77"), open("?innodb_lock_wait_timeout=7&wait_timeout=77", true))
	require.Equal(t, want("50", "28800"), open(wrong, false))
}

// The policies of a server once let each lock be lost: it refused renewals, which name no key, and cut off what a look read.
func TestPoliciesOfTheServer(t *testing.T) {
	t.Parallel()
	s := dbtest.MariaDB(t, dbtest.NoSync())
	s.Exec("SET GLOBAL sql_safe_updates=1, GLOBAL sql_select_limit=1, GLOBAL max_join_size=100, GLOBAL sql_mode='EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT', " +
		"GLOBAL max_statement_time=0.001, GLOBAL tx_read_only=1, GLOBAL unique_checks=0")
	require.NoError(t, Migrate(t.Context(), s.URL()))
	b, err := Open(s.URL())
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	require.NoError(t, b.Ping(t.Context()))
	var leases []distributed.Lease
	for i := range 5 {
		ask := testlocker.Asker{T: t, B: b, Key: fmt.Sprint(i), TTL: time.Minute}
		leases = append(leases, ask.Lease("holder"))
	}
	for _, l := range leases { // one renewal looks at all of them
		until := l.Until()
		l.RenewBy(time.Now())
		require.Eventually(t, func() bool { return l.Until().After(until) }, time.Minute, time.Millisecond)
	}
	for _, l := range leases {
		testlocker.Release(t, l)
	}
}

// A node of Galera that has left its cluster answers 1047 to every statement, and keeps its connections, while the name of the cluster leads
// to another node: few requests are refused.
func TestNodeThatLeavesItsCluster(t *testing.T) {
	testscope.Long(t, "starts a node of Galera")
	t.Parallel()
	ports := [2]string{}
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ports[i] = l.Addr().String()
		require.NoError(t, l.Close())
	}
	node, other := dbtest.MariaDB(t, dbtest.NoSync(), dbtest.Set("wsrep_provider", "/usr/lib/galera/libgalera_smm.so"), dbtest.Set("wsrep_on", "ON"),
		dbtest.Set("binlog_format", "ROW"), dbtest.Set("wsrep_cluster_address", "gcomm://"), dbtest.Set("wsrep_node_address", "127.0.0.1"),
		dbtest.Set("wsrep_provider_options", "gmcast.listen_addr=tcp://"+ports[0]+";ist.recv_addr="+ports[1])), dbtest.MariaDB(t, dbtest.NoSync())
	for _, s := range []*dbtest.Server{node, other} {
		require.NoError(t, Migrate(t.Context(), s.URL()))
	}
	require.Contains(t, node.Exec("SHOW STATUS LIKE 'wsrep_ready'"), "ON")
	cluster := testproc.NewProxy(t, node.Addr)
	b, err := Open(node.URLAt(cluster.Addr))
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	var warm sync.WaitGroup
	for i := range connections { // as many as there can be
		warm.Go(func() {
			ask := testlocker.Asker{T: t, B: b, Key: fmt.Sprint(i), TTL: time.Minute}
			testlocker.Release(t, ask.Lease("holder"))
		})
	}
	warm.Wait()
	cluster.Redirect(other.Addr)
	node.Exec("SET GLOBAL wsrep_reject_queries=ALL")
	refused := 0
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		l, _, err := b.Enter(ctx, distributed.Request{Key: "k", Instance: "a", TTL: time.Minute})
		if err != nil {
			require.ErrorContains(t, err, "1047")
			refused++
			return false
		}
		testlocker.Release(t, l)
		return true
	}, time.Minute, 20*time.Millisecond)
	require.Less(t, refused, 100)
	t.Logf("%d were refused", refused)
}

// A server accepts and says nothing, and then another one is there. No connection of before is ever answered: the pool makes new ones.
func TestMuteServerDoesNotKeepThePool(t *testing.T) {
	t.Parallel()
	s := dbtest.SharedMariaDB(t)
	proxy := testproc.NewProxy(t, s.Addr)
	var mute atomic.Int64
	proxy.SetFilters(nil, func(*testproc.Link, []byte) bool { mute.Add(1); return false }) // its greeting is lost
	db, err := OpenDB(s.URLAt(proxy.Addr) + "?timeout=1s")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	var pings sync.WaitGroup
	for range connections { // as many as it has fail; the pool itself makes one for each that waits
		pings.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			require.Error(t, db.PingContext(ctx))
		})
	}
	require.Eventually(t, func() bool { return db.Stats().InUse == connections }, time.Minute, time.Microsecond)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range connections {
		pings.Go(func() {
			var err error
			for again := true; again; again = err != nil && ctx.Err() == nil { // one that waits is told what came of a connection of before
				err = db.PingContext(ctx)
			}
			require.NoError(t, err)
		})
	}
	require.Eventually(t, func() bool { return mute.Load() > connections }, time.Minute, time.Millisecond)
	proxy.SetFilters(nil, nil)
	pings.Wait()
}

// The password is in a file that the URL names, and read again for each connection.
func TestPasswordFile(t *testing.T) {
	t.Parallel()
	s, file := dbtest.SharedMariaDB(t), filepath.Join(t.TempDir(), "password")
	u, err := url.Parse(s.URL())
	require.NoError(t, err)
	password, _ := u.User.Password()
	u.User, u.RawQuery = url.User(u.User.Username()), "loc=Europe%2FVienna&password-file="+url.QueryEscape(file)
	db, err := OpenDB(u.String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.ErrorContains(t, db.PingContext(t.Context()), "password-file: open "+file)
	require.NoError(t, os.WriteFile(file, []byte("wrong\n"), 0o600))
	require.ErrorContains(t, db.PingContext(t.Context()), "Access denied")
	require.NoError(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
	require.NoError(t, db.PingContext(t.Context()))
	for _, wrong := range []string{"mysql://u:secret@h/db?password-file=f", "mysql://h/db?password-file=f", "mysql://u@h/db?password-file="} {
		_, err := OpenDB(wrong)
		require.ErrorContains(t, err, "password-file")
		require.NotContains(t, err.Error(), "secret")
	}
}

// What the driver logs of a connection that was not made is in the error. What it logs of others goes to the logger of the Backend, not to
// the standard error.
func TestLogOfTheDriver(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	l := &driverLog{}
	l.LogTo(slog.New(slog.NewTextHandler(&lines, nil)))
	w := &words{log: l}
	w.Print("unexpected", "EOF")
	require.EqualError(t, w.made(driver.ErrBadConn), "driver: bad connection: unexpected EOF")
	require.ErrorIs(t, w.made(driver.ErrBadConn), driver.ErrBadConn)
	require.Empty(t, lines.String())
	w.Print("closing bad idle connection")
	require.Contains(t, lines.String(), `text="closing bad idle connection"`)

	b, err := Open("mysql://u@127.0.0.1:1/db", sqllock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	require.NoError(t, b.Close())
}

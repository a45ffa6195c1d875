package dbtest

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/internal/testproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(Main(m)) }

// servers are what PostgreSQL and MariaDB have in common.
var servers = map[string]struct {
	start, shared func(t testing.TB) *Server
	tables        string // a query for the tables of the database
	variable      string // a query for max_connections
}{
	"postgres": {
		func(t testing.TB) *Server { return Postgres(t, Set("max_connections", "17")) },
		func(t testing.TB) *Server { return SharedPostgres(t) },
		"SELECT tablename FROM pg_tables WHERE schemaname='public'", "SHOW max_connections",
	},
	"mariadb": {
		func(t testing.TB) *Server { return MariaDB(t, Set("max_connections", "17")) },
		func(t testing.TB) *Server { return SharedMariaDB(t) },
		"SHOW TABLES", "SELECT @@max_connections",
	},
}

func TestServersKeepWhatWasCommittedWhenTheyAreKilled(t *testing.T) {
	t.Parallel()
	for name, kind := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := kind.start(t)
			require.Equal(t, "17", s.Exec(kind.variable))
			s.Exec("CREATE TABLE kept (n int)")
			s.Kill()
			_, err := s.try("SELECT 1")
			require.Error(t, err)
			s.Restart()
			require.Equal(t, "kept", s.Exec(kind.tables))
		})
	}
}

func TestPausedServersDoNotAnswer(t *testing.T) {
	t.Parallel()
	for name, kind := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := kind.start(t)
			answered := make(chan string, 1)
			s.Pause()
			go func() { answered <- s.Exec("SELECT 1") }()
			select {
			case <-answered:
				t.Error("a paused server answered")
			case <-time.After(200 * time.Millisecond):
			}
			s.Resume()
			require.Equal(t, "1", <-answered)
		})
	}
}

func TestSharedServersGiveEachTestItsDatabase(t *testing.T) {
	t.Parallel()
	for name, kind := range servers {
		for range 2 {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := kind.shared(t)
				s.Exec("CREATE TABLE here (n int)")
				require.Equal(t, "here", s.Exec(kind.tables))
				require.Contains(t, s.URL(), s.Addr+"/"+s.Database)
			})
		}
	}
}

func TestStandbyLacksWhatDidNotArrive(t *testing.T) {
	t.Parallel()
	primary := Postgres(t, NoSync())
	primary.Exec("CREATE TABLE arrived (n int)")
	standby := primary.Standby()
	standby.CaughtUp(primary)
	standby.Link.Stall(true)
	primary.Exec("CREATE TABLE held_up (n int)")
	standby.Promote()
	require.Equal(t, "arrived", standby.Exec(servers["postgres"].tables))
	standby.Exec("CREATE TABLE its_own (n int)")
	require.Equal(t, "2", primary.Exec("SELECT count(*) FROM pg_tables WHERE schemaname='public'"))
}

func TestClockOfAServerIsShifted(t *testing.T) {
	t.Parallel()
	clock := testproc.NewClock(t)
	clock.Shift(time.Hour)
	for name, c := range map[string]struct {
		start func() *Server
		query string
	}{
		"postgres": {func() *Server { return Postgres(t, Clock(clock)) }, "SELECT floor(extract(epoch from clock_timestamp()))"},
		"mariadb":  {func() *Server { return MariaDB(t, Clock(clock)) }, "SELECT TIMESTAMPDIFF(SECOND, '1970-01-01', UTC_TIMESTAMP())"},
	} {
		s := c.start()
		for _, ahead := range []time.Duration{time.Hour, -time.Hour, 0} {
			clock.Shift(ahead)
			now, err := strconv.ParseInt(s.Exec(c.query), 10, 64)
			require.NoError(t, err)
			require.InDelta(t, time.Now().Add(ahead).Unix(), now, 10, "%s, %v", name, ahead)
		}
		clock.Shift(time.Hour)
	}
}

func TestMemcachedAnswers(t *testing.T) {
	t.Parallel()
	s := Memcached(t)
	require.Equal(t, "STORED\r\n", string(testproc.Ask(s.Addr, []byte("set k 0 0 1\r\nv\r\n"))))
	s.Restart()
	require.Equal(t, "END\r\n", string(testproc.Ask(s.Addr, []byte("get k\r\n"))))
}

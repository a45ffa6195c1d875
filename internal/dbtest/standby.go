package dbtest

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/wllock/wllock/internal/testproc"
)

// Standby is an asynchronous replica of a PostgreSQL server, open for reading until Promote.
type Standby struct {
	*Server
	// Link is between it and the primary: while it is stalled, what the primary commits does not arrive.
	Link *testproc.Proxy
}

// Standby starts a replica and waits until it streams.
func (s *Server) Standby() *Standby {
	s.t.Helper()
	link := testproc.NewProxy(s.t, s.Addr)
	conninfo := fmt.Sprintf("host=127.0.0.1 port=%s user=%s application_name=standby", portOf(link.Addr), account)
	o := s.opts
	o.settings = append(o.settings[:len(o.settings):len(o.settings)], "primary_conninfo="+conninfo)
	copied := launchPostgres(s.t, o, func(dir string) error {
		_, err := testproc.Command{
			Path: postgresProgram("pg_basebackup"), Dir: dir, User: postgresUser,
			Args: []string{
				"-D", filepath.Join(dir, "data"), "-R", "-X", "stream", "-c", "fast", "--no-sync", "-h", "127.0.0.1",
				"-p", strconv.Itoa(s.Port), "-U", account,
			},
		}.Output()
		return err
	})
	s.await("the standby streams", "SELECT count(*) FROM pg_stat_replication WHERE state='streaming' AND application_name='standby'", "1")
	return &Standby{copied, link}
}

func portOf(addr string) string {
	for i := len(addr) - 1; i >= 0; i-- {
		if addr[i] == ':' {
			return addr[i+1:]
		}
	}
	return addr
}

// CaughtUp waits until the standby has everything that the primary has committed.
func (s *Standby) CaughtUp(primary *Server) {
	s.t.Helper()
	lsn := primary.Exec("SELECT pg_current_wal_lsn()")
	s.await("the standby has caught up", fmt.Sprintf("SELECT pg_last_wal_replay_lsn() >= '%s'", lsn), "t")
}

// Promote makes the standby a primary. It does not stop the old one.
func (s *Standby) Promote() {
	s.t.Helper()
	s.Exec("SELECT pg_promote(true, 60)")
	s.await("the standby is a primary", "SELECT pg_is_in_recovery()", "f")
}

// await waits until a query answers as wanted.
func (s *Server) await(what, query, want string) {
	s.t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if got, err := s.try(query); err == nil && got == want {
			return
		}
	}
	s.t.Fatalf("not within %v: %s", patience, what)
}

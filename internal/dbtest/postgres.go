package dbtest

import (
	"encoding/binary"
	"path/filepath"
	"strconv"

	"github.com/wllock/wllock/internal/testproc"
)

// postgresUser runs the server if this process is root, which PostgreSQL refuses.
const postgresUser = "postgres"

// postgresPrograms are where packages put the programs of a server.
var postgresPrograms = []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin"}

type postgres struct{}

func (postgres) scheme() string { return "postgres" }
func (postgres) query() string  { return "sslmode=disable" }

func (postgres) client(port int, database, script string) testproc.Command {
	return testproc.Command{
		Path: postgresProgram("psql"), Env: []string{"PGPASSWORD=" + password},
		Args: []string{
			"-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", strconv.Itoa(port),
			"-U", account, "-d", database, "-c", script,
		},
	}
}

func postgresProgram(name string) string {
	path, err := testproc.Find(name, postgresPrograms...)
	if err != nil {
		return name
	}
	return path
}

func missingPostgres() error {
	_, err := testproc.Find("postgres", postgresPrograms...)
	return err
}

// Postgres starts a PostgreSQL server.
func Postgres(t TB, opts ...Option) *Server {
	t.Helper()
	testproc.Need(t, missingPostgres())
	return launchPostgres(t, newOptions(opts), func(dir string) error { return install(dir, "postgres", postgresUser, initdb) })
}

// launchPostgres starts a server on the data that fill puts below its folder.
func launchPostgres(t TB, o options, fill func(dir string) error) *Server {
	t.Helper()
	s := &Server{product: postgres{}, Database: "postgres", opts: o, t: t}
	s.Server = testproc.Launch(t, testproc.Spec{
		Name: "postgres", FirstPort: firstPort, LastPort: lastPort, User: postgresUser, Patience: patience,
		Prepare: fill,
		Command: func(p *testproc.Server) testproc.Command { return postgresCommand(p, o) },
		Ready:   func(p *testproc.Server) bool { return postgresReady(p.Addr) },
	})
	return s
}

func postgresCommand(p *testproc.Server, o options) testproc.Command {
	args := []string{"-D", filepath.Join(p.Dir, "data"), "-p", strconv.Itoa(p.Port)}
	// A killed server leaves POSIX segments of shared memory behind, in /dev/shm; files in its folder go with the folder.
	settings := []string{"dynamic_shared_memory_type=mmap", "listen_addresses=127.0.0.1", "unix_socket_directories=",
		"autovacuum_naptime=5s", "max_wal_size=256MB"}
	if o.noSync {
		settings = append(settings, "fsync=off", "full_page_writes=off")
	}
	for _, setting := range append(settings, o.settings...) {
		args = append(args, "-c", setting)
	}
	return testproc.Command{Path: postgresProgram("postgres"), Args: args, Env: o.env(), User: postgresUser, Family: true}
}

// initdb makes a data folder whose superuser is the account of tests.
func initdb(dir string) error {
	_, err := testproc.Command{
		Path: postgresProgram("initdb"), Dir: filepath.Dir(dir), User: postgresUser,
		Args: []string{"-D", dir, "-U", account, "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C", "--no-instructions"},
	}.Output()
	return err
}

// postgresReady logs on and reports whether the server agrees.
func postgresReady(addr string) bool {
	const version3 = 3 << 16
	parameters := "user\x00" + account + "\x00database\x00postgres\x00\x00"
	startup := binary.BigEndian.AppendUint32(nil, uint32(8+len(parameters)))
	startup = binary.BigEndian.AppendUint32(startup, version3)
	answer := testproc.Ask(addr, append(startup, parameters...))
	return len(answer) > 0 && answer[0] == 'R' // an E says that it is still starting
}

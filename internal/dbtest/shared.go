package dbtest

import "github.com/wllock/wllock/internal/testproc"

var shared testproc.Shared[*Server]

// Main wraps the tests of a package that use shared servers. It stops these when all tests have ended.
func Main(m interface{ Run() int }) interface{ Run() int } { return shared.Main(tests{m}) }

type tests struct{ m interface{ Run() int } }

func (s tests) Run() int {
	templates.open()
	defer templates.close()
	return s.m.Run()
}

// SharedPostgres returns a fresh database on a PostgreSQL server that all tests of the package use. The server is not to be
// killed, paused or configured. It has room for 500 connections and does not sync.
func SharedPostgres(t TB) *Server {
	t.Helper()
	testproc.Need(t, missingPostgres())
	return shared.Get(t, "postgres", func(t TB) *Server {
		return Postgres(t, NoSync(), Set("max_connections", "500"), Set("synchronous_commit", "off"))
	}).NewDatabase(t)
}

// SharedMariaDB is SharedPostgres for MariaDB.
func SharedMariaDB(t TB) *Server {
	t.Helper()
	testproc.Need(t, missingMariaDB())
	return shared.Get(t, "mariadb", func(t TB) *Server {
		return MariaDB(t, NoSync(), Set("max_connections", "500"))
	}).NewDatabase(t)
}

package dbtest

import (
	"fmt"
	"sync"

	"github.com/wllock/wllock/internal/testproc"
)

// shared is what lives as long as the test binary runs its tests, between the beginning and the end of Main's Run.
var shared struct {
	mu      sync.Mutex
	running bool               // guarded by mu
	stop    []func()           // guarded by mu; last in, first out
	servers map[string]*Server // guarded by mu
}

// Main wraps the tests of a package that use shared servers. It stops these when all tests have ended.
func Main(m interface{ Run() int }) interface{ Run() int } { return tests{m} }

type tests struct{ m interface{ Run() int } }

func (s tests) Run() int {
	shared.mu.Lock()
	shared.running, shared.servers = true, make(map[string]*Server)
	shared.mu.Unlock()
	templates.open()
	defer func() {
		stopShared()
		templates.close()
	}()
	return s.m.Run()
}

func stopShared() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	for last := len(shared.stop) - 1; last >= 0; last-- {
		shared.stop[last]()
	}
	shared.running, shared.stop, shared.servers = false, nil, nil
}

// SharedPostgres returns a fresh database on a PostgreSQL server that all tests of the package use. The server is not to be
// killed, paused or configured. It has room for 500 connections and does not sync.
func SharedPostgres(t TB) *Server {
	t.Helper()
	return sharedServer(t, "postgres", func(t TB) *Server {
		return Postgres(t, NoSync(), Set("max_connections", "500"), Set("synchronous_commit", "off"))
	})
}

// SharedMariaDB is SharedPostgres for MariaDB.
func SharedMariaDB(t TB) *Server {
	t.Helper()
	return sharedServer(t, "mariadb", func(t TB) *Server {
		return MariaDB(t, NoSync(), Set("max_connections", "500"))
	})
}

// sharedServer starts the server unless it runs. Other tests wait meanwhile: their databases come from the same one.
func sharedServer(t TB, name string, start func(TB) *Server) *Server {
	t.Helper()
	shared.mu.Lock()
	if !shared.running {
		shared.mu.Unlock()
		t.Fatalf("TestMain does not run its tests through dbtest.Main")
	}
	s := shared.servers[name]
	if s == nil {
		started, failure := startShared(start)
		if started == nil {
			shared.mu.Unlock()
			testproc.Need(t, failure)
		}
		shared.servers[name], s = started, started
	}
	shared.mu.Unlock()
	return s.NewDatabase(t)
}

// startShared runs start with a TB that lives as long as the package's tests. The caller holds shared.mu, which nothing
// else needs that start waits for.
func startShared(start func(TB) *Server) (s *Server, failure error) {
	t := new(packageTB)
	defer func() {
		if p := recover(); p != nil && p != any(t) {
			panic(p)
		}
		failure = t.failure
		if s == nil {
			t.cleanUp()
			return
		}
		shared.stop = append(shared.stop, t.cleanUp)
	}()
	return start(t), nil
}

// packageTB is the TB of what a package's tests share.
type packageTB struct {
	cleanups []func()
	failure  error
}

func (t *packageTB) Helper()          {}
func (t *packageTB) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// Fatalf ends start by a panic, as a test's ends its goroutine.
func (t *packageTB) Fatalf(format string, args ...any) {
	t.failure = fmt.Errorf(format, args...)
	panic(t)
}

func (t *packageTB) Skipf(format string, args ...any) { t.Fatalf(format, args...) }

func (t *packageTB) cleanUp() {
	for last := len(t.cleanups) - 1; last >= 0; last-- {
		t.cleanups[last]()
	}
	t.cleanups = nil
}

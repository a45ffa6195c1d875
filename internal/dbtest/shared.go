package dbtest

import (
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
	testproc.Need(t, missingPostgres())
	return sharedServer(t, "postgres", func(t TB) *Server {
		return Postgres(t, NoSync(), Set("max_connections", "500"), Set("synchronous_commit", "off"))
	})
}

// SharedMariaDB is SharedPostgres for MariaDB.
func SharedMariaDB(t TB) *Server {
	t.Helper()
	testproc.Need(t, missingMariaDB())
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
			t.Fatalf("%v", failure)
		}
		shared.servers[name], s = started, started
	}
	shared.mu.Unlock()
	return s.NewDatabase(t)
}

// startShared runs start with a scope that lives as long as the package's tests. The caller holds shared.mu.
func startShared(start func(TB) *Server) (s *Server, failure error) {
	scope := new(testproc.Scope)
	defer func() {
		if s != nil {
			shared.stop = append(shared.stop, scope.End)
			return
		}
		p := recover()
		scope.End()
		f, ok := p.(testproc.Failure)
		if !ok {
			panic(p)
		}
		failure = f
	}()
	return start(scope), nil
}

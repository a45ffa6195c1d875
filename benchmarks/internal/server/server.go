// Package server starts what locks are kept in, and reads what it counts. Read kinds.go first: a row is a kind of server.
package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/testproc"
)

// Store is what locks are kept in.
type Store uint8

const (
	Redis     Store = iota // one redis-server
	Redlock                // five, which know nothing of each other
	ZooKeeper              // one server without fsync, as the tests have it
	MariaDB                // one server
	Postgres               // one server
	SQLite                 // a file
	Etcd                   // one member, which syncs its log
	Memcached              // one server
	Memory                 // this process; each round has new locks
)

// Server is a running store.
type Server struct {
	// Addr is that of all its processes, separated by commas; of a database a URL.
	Addr string

	kind  kind
	scope testproc.Scope // ends the processes
	pids  []int
	redis []*redis.Client // for the benchmarks' own commands, one for each redis-server
	db    *sql.DB         // for the benchmarks' own statements
}

// kind is how a store is started, and what it is asked.
type kind struct {
	start  func(ctx context.Context, s *Server) // ends with a failure of s.scope if it cannot
	name   string                               // before its version
	ask    func(ctx context.Context, s *Server, question string) (string, error)
	states question // its version
	counts question // how often each command was called, the name before the number; of one number the name is unit
	unit   string
}

// question is one to a server, and what to look for in the answer.
type question struct {
	text   string
	answer *regexp.Regexp
}

// Start starts a store and waits until it answers. Stop it at the end; on Linux its processes also end with this one, however that
// ends.
func Start(ctx context.Context, what Store) (s *Server, err error) {
	s = &Server{kind: kinds[what]}
	defer func() {
		p := recover()
		if failure, ok := p.(testproc.Failure); ok {
			s.Stop()
			s, err = nil, fmt.Errorf("start %s: %w", kinds[what].name, failure)
		} else if p != nil {
			panic(p)
		}
	}()
	s.kind.start(ctx, s)
	return s, nil
}

// must ends a start with an error.
func (s *Server) must(err error) {
	if err != nil {
		s.scope.Fatalf("%v", err)
	}
}

// Stop ends it and removes what it left.
func (s *Server) Stop() { s.scope.End() }

// runs notes a process of the store.
func (s *Server) runs(p *testproc.Server) {
	if s.pids = append(s.pids, p.Pid()); s.Addr != "" {
		s.Addr += ","
	}
	s.Addr += p.Addr
}

// Flush forgets all locks and statistics of Redis. Elsewhere the locks of a round end with its connections, sessions and Lockers, which
// have been closed.
func (s *Server) Flush(ctx context.Context) error {
	var errs []error
	for _, c := range s.redis {
		errs = append(errs, c.FlushAll(ctx).Err(), c.ConfigResetStat(ctx).Err())
	}
	return errors.Join(errs...)
}

// CPU returns the CPU time that the processes have used.
func (s *Server) CPU() (sum time.Duration) {
	for _, pid := range s.pids {
		sum += cpuOf(pid)
	}
	return sum
}

// Version names the servers and their version; "": there are none.
func (s *Server) Version(ctx context.Context) (string, error) {
	found, err := s.find(ctx, s.kind.states)
	if found == nil {
		return "", err
	}
	return s.kind.name + " " + found[0][1], nil
}

// Commands returns how often each command was called; of several servers the sums. A Redis server counts since the last Flush, by the
// names of INFO commandstats such as "set" or "client|setinfo", and the calls of scripts in the same figures. nil: nothing is counted.
func (s *Server) Commands(ctx context.Context) (map[string]int64, error) {
	found, err := s.find(ctx, s.kind.counts)
	if found == nil {
		return nil, err
	}
	calls := make(map[string]int64)
	for _, match := range found {
		name, number := s.kind.unit, match[len(match)-1]
		if name == "" {
			name = match[1]
		}
		n, err := strconv.ParseFloat(number, 64) // etcd writes 1.2e+06
		if err != nil {
			return nil, fmt.Errorf("what %s counts: %w", s.kind.name, err)
		}
		calls[name] += int64(n)
	}
	return calls, nil
}

// find returns all that the answer to a question holds; nil: there is no question.
func (s *Server) find(ctx context.Context, q question) ([][]string, error) {
	if q.text == "" {
		return nil, nil
	}
	text, err := s.kind.ask(ctx, s, q.text)
	found := q.answer.FindAllStringSubmatch(text, -1)
	if found == nil {
		return nil, errors.Join(fmt.Errorf("%s has no %s in its answer to %q", s.kind.name, q.answer, strings.TrimSpace(q.text)), err)
	}
	return found, nil
}

// OwnCPU returns the CPU time this process has used.
func OwnCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

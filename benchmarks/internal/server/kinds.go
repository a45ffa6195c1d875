package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/zktest"
)

const (
	// redlockServers is the usual number of independent Redis servers.
	redlockServers = 5
	// databaseConnections are enough for a connection for each of 8 x 16 callers, and for what holds none of them.
	databaseConnections = "300"
	// statusWait bounds an answer to a question about the server's state.
	statusWait = 5 * time.Second
)

var (
	redisVersion = asks("server", `redis_version:(\S+)`)
	redisCalls   = asks("commandstats", `(?m)^cmdstat_([^:]+):calls=(\d+)`)
	digits       = `(\d[\d.]*)`
)

var kinds = map[Store]kind{
	Redis: {
		name: "Redis", start: redisServers(1), ask: info, states: redisVersion, counts: redisCalls,
	},
	Redlock: {
		name: fmt.Sprintf("%d x Redis", redlockServers), start: redisServers(redlockServers), ask: info,
		states: redisVersion, counts: redisCalls,
	},
	ZooKeeper: { // counts packets, pings of idle connections and this question included
		name: "ZooKeeper", start: one(func(t testproc.TB) *testproc.Server { return zktest.Start(t).Server }), ask: overTCP,
		states: asks("srvr", "Zookeeper version: "+digits), counts: asks("srvr", "Received: "+digits), unit: "request",
	},
	Etcd: { // counts messages, those of streams included: keepalives, and the beginnings and ends of watches
		name: "etcd", start: one(func(t testproc.TB) *testproc.Server { return etcdtest.Start(t) }), ask: overTCP,
		states: asks("GET /version HTTP/1.0\r\n\r\n", `"etcdserver":"`+digits),
		counts: asks("GET /metrics HTTP/1.0\r\n\r\n", `(?m)^grpc_server_msg_received_total\{.*\} (\S+)`), unit: "request",
	},
	Memcached: { // counts add and cas as set
		name: "memcached", start: one(func(t testproc.TB) *testproc.Server { return dbtest.Memcached(t) }), ask: overTCP,
		states: asks("stats\r\nquit\r\n", "STAT version "+digits), counts: asks("stats\r\nquit\r\n", `STAT cmd_(get|set) (\d+)`),
	},
	MariaDB: { // like PostgreSQL, counts statements, this question included
		name: "MariaDB", start: startMariaDB, ask: query, states: asks("SELECT VERSION()", digits),
		counts: asks("SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'QUESTIONS'", digits),
		unit:   "statement",
	},
	Postgres: {
		name: "PostgreSQL", start: startPostgres, ask: query, states: asks("SHOW server_version", digits),
		counts: asks("SELECT sum(calls)::bigint FROM pg_stat_statements", digits), unit: "statement",
	},
	SQLite: { // no server: its CPU time is the process's own, and nothing is counted
		name: "SQLite", start: openSQLite, ask: query, states: asks("SELECT sqlite_version()", digits),
	},
	Memory: {start: func(context.Context, *Server) {}},
}

func asks(text, answer string) question { return question{text, regexp.MustCompile(answer)} }

// one starts a store of one process.
func one(start func(t testproc.TB) *testproc.Server) func(context.Context, *Server) {
	return func(_ context.Context, s *Server) { s.runs(start(&s.scope)) }
}

// redisServers starts n servers that store nothing on disk.
func redisServers(n int) func(context.Context, *Server) {
	return func(_ context.Context, s *Server) {
		program, err := testproc.Find("redis-server")
		s.must(err)
		for range n {
			p := testproc.Launch(&s.scope, testproc.Spec{
				Name: "redis", FirstPort: 20000, LastPort: 32000, // below those that Linux uses for outgoing connections
				Command: func(p *testproc.Server) testproc.Command {
					return testproc.Command{Path: program, Args: []string{
						"--port", strconv.Itoa(p.Port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
					}}
				},
				Ready: func(p *testproc.Server) bool {
					return bytes.HasPrefix(testproc.Ask(p.Addr, []byte("PING\r\n")), []byte("+PONG"))
				},
			})
			client := redis.NewClient(&redis.Options{Addr: p.Addr, PoolSize: 1, MaxRetries: -1})
			s.scope.Cleanup(func() { _ = client.Close() })
			s.redis = append(s.redis, client)
			s.runs(p)
		}
	}
}

func startMariaDB(ctx context.Context, s *Server) {
	d := dbtest.MariaDB(&s.scope, dbtest.Set("max-connections", databaseConnections))
	s.runs(d.Server)
	s.Addr = d.URL()
	dsn, err := MySQLDSN(s.Addr)
	s.must(err)
	s.open(ctx, "mysql", dsn)
}

func startPostgres(ctx context.Context, s *Server) {
	d := dbtest.Postgres(&s.scope, dbtest.Set("max_connections", databaseConnections),
		dbtest.Set("shared_preload_libraries", "pg_stat_statements"))
	s.runs(d.Server)
	s.Addr = d.URL()
	s.open(ctx, "pgx", s.Addr, "CREATE EXTENSION pg_stat_statements")
}

func openSQLite(ctx context.Context, s *Server) {
	s.Addr = "sqlite://" + filepath.Join(testproc.TempDir(&s.scope, "wllock-bench"), "locks.db")
	s.open(ctx, "sqlite", SQLiteDSN(s.Addr))
}

// info asks every redis-server for a section of INFO.
func info(ctx context.Context, s *Server, section string) (string, error) {
	var all strings.Builder
	for _, c := range s.redis {
		text, err := c.Info(ctx, section).Result()
		if err != nil {
			return "", err
		}
		all.WriteString(text)
	}
	return all.String(), nil
}

// overTCP sends a question and returns what the server says until it hangs up.
func overTCP(ctx context.Context, s *Server, question string) (string, error) {
	conn, err := (&net.Dialer{Timeout: statusWait}).DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(statusWait))
	if _, err = conn.Write([]byte(question)); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}

// query asks a database for one value.
func query(ctx context.Context, s *Server, statement string) (value string, err error) {
	err = s.db.QueryRowContext(ctx, statement).Scan(&value)
	return value, err
}

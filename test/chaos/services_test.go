package chaos

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/redlock"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/distributed/sqllock/mysql"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/distributed/sqllock/sqlite"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/kubetest"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/zktest"
	"github.com/wllock/wllock/test/history"
)

// service is a lock service that has been started.
type service struct {
	servers  []*testproc.Server
	minority int                                              // it can do without so many servers
	url      func(process int, ways map[string]string) string // by the addresses of the proxies
	stays    bool                                             // its servers are not killed
	here     bool                                             // its server is no process of its own
	request  string                                           // is part of each request. "": those for a lock contain its name
	counts   time.Duration                                    // so long after a server was started again, no other may be
	own      map[string]func(f *fleet, name string)           // faults that no other service has
}

// cell is a backend, and a shape of its service.
type cell struct {
	backend, shape string
	ttl            time.Duration
	start          func(t *testing.T) *service
	forgets        bool // what it has acknowledged
	unordered      bool // it promises no order
	noPermits      bool
	noFences       bool
	localOnly      bool
}

const short, long = time.Second, 2 * time.Second // leases

var cells = []cell{
	{backend: "redis", shape: "alone", ttl: short, start: redisAlone},
	{backend: "redis", shape: "localonly", ttl: short, start: redisAway, localOnly: true},
	{backend: "redis", shape: "memory", ttl: short, start: redisMemory, forgets: true},
	{backend: "redis", shape: "sentinel", ttl: short, start: redisSentinel, forgets: true},
	{backend: "redis", shape: "cluster", ttl: short, start: redisCluster},
	{backend: "redlock", shape: "3", ttl: short, start: redlockOf(3), unordered: true, noPermits: true},
	{backend: "redlock", shape: "5", ttl: short, start: redlockOf(5), unordered: true, noPermits: true},
	{backend: "redlock", shape: "three-of-5", ttl: short, start: reachThree, unordered: true, noPermits: true},
	{backend: "redlock", shape: "clocks", ttl: short, start: clocks, unordered: true, noPermits: true},
	{backend: "postgres", shape: "alone", ttl: long, start: database(dbtest.Postgres, postgres.OpenDB, sqllock.PostgreSQL)},
	{backend: "mariadb", shape: "alone", ttl: long, start: database(dbtest.MariaDB, mysql.OpenDB, sqllock.MySQL)},
	{backend: "sqlite", shape: "file", ttl: long, start: file},
	{backend: "etcd", shape: "alone", ttl: long, start: func(t *testing.T) *service { return etcd([]*etcdtest.Server{etcdtest.Start(t)}) }},
	{backend: "etcd", shape: "three", ttl: long, start: func(t *testing.T) *service { return etcd(etcdtest.StartCluster(t)) }},
	{backend: "zookeeper", shape: "alone", ttl: long, start: func(t *testing.T) *service { return zookeeper([]*zktest.Server{zktest.Start(t)}) }},
	{backend: "zookeeper", shape: "three", ttl: long, start: func(t *testing.T) *service { return zookeeper(zktest.StartEnsemble(t, false)) }},
	{backend: "nats", shape: "alone", ttl: long, start: natsOf(1)},
	{backend: "nats", shape: "three", ttl: long, start: natsOf(3)},
	{backend: "kubernetes", shape: "alone", ttl: long, start: apiServer},
	{backend: "kubernetes", shape: "stand-in", ttl: long, start: kubernetes},
	{backend: "s3", shape: "stand-in", ttl: long, start: bucket},
	{backend: "dynamodb", shape: "stand-in", ttl: long, start: table},
	{backend: "memcached", shape: "alone", ttl: long, start: memcached, noFences: true},
}

// hosts is a list of the servers in a URL, as a process reaches them.
func (s *service) hosts(ways map[string]string) string {
	var all []string
	for _, one := range s.servers {
		all = append(all, ways[one.Addr])
	}
	return strings.Join(all, ",")
}

// durable has a Redis server keep what it has acknowledged.
var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

func redisAlone(t *testing.T) *service {
	return redisOf("redis://", "", redistest.Start(t, durable...))
}

// redisAway is away for so long now and then that callers are let in without it.
func redisAway(t *testing.T) *service {
	s := redisAlone(t)
	s.own["outage"] = func(f *fleet, name string) { f.away(name, s.servers[0].Pause, s.servers[0].Resume, 6*short) }
	return s
}

func redisMemory(t *testing.T) *service { return redisOf("redis://", "", redistest.Start(t)) }

func redisCluster(t *testing.T) *service {
	return redisOf("redis+cluster://", "", redistest.StartCluster(t, durable...).Nodes...)
}

func redisSentinel(t *testing.T) *service {
	group := redistest.StartSentinel(t)
	s := redisOf("redis+sentinel://", "/"+redistest.MasterName, group.Primary, group.Replica)
	s.url = func(int, map[string]string) string {
		return "redis+sentinel://" + strings.Join(group.Addrs(), ",") + "/" + redistest.MasterName
	}
	s.own["failover"] = func(f *fleet, name string) {
		f.during(history.Fault{Name: name}, func() {
			f.measureAll(name)
			failOver(t, group)
		})
	}
	return s
}

// failOver waits until the replica may become the primary, and until it is.
func failOver(t *testing.T, group *redistest.Sentinel) {
	sentinel, before := group.Sentinels[0].Client(), group.PrimaryAddr()
	redistest.Eventually(t, time.Minute, "a failover", func() bool {
		_ = sentinel.Do(context.Background(), "SENTINEL", "FAILOVER", redistest.MasterName).Err() // refused: it is under way, or there is no replica
		for range 20 {
			if group.PrimaryAddr() != before {
				return true
			}
			time.Sleep(tick)
		}
		return false
	})
}

// redisOf is a service whose clients hear of the servers' own addresses.
func redisOf(scheme, path string, all ...*redistest.Server) *service {
	s, own := &service{}, []string{}
	for _, one := range all {
		s.servers, own = append(s.servers, one.Server), append(own, one.Addr)
	}
	s.url = func(int, map[string]string) string { return scheme + strings.Join(own, ",") + path }
	s.own = map[string]func(*fleet, string){
		"script flush": on(all, "SCRIPT", "FLUSH"), "pubsub clients killed": on(all, "CLIENT", "KILL", "TYPE", "pubsub"),
		"clients killed": on(all, "CLIENT", "KILL", "TYPE", "normal"),
	}
	return s
}

// on is a fault that a command causes.
func on(all []*redistest.Server, command ...any) func(*fleet, string) {
	return func(f *fleet, name string) {
		f.during(history.Fault{Name: name}, func() {
			for _, one := range all {
				one.Do(command...)
			}
		})
	}
}

// redlockOf is so many servers, which know the longest TTL of their system. One that has lost its data counts when that time is over.
func redlockOf(n int) func(t *testing.T) *service {
	return func(t *testing.T) *service {
		var all []*redistest.Server
		for range n {
			all = append(all, redistest.Start(t))
		}
		s := redlockOn(t, all)
		s.own["data lost"] = func(f *fleet, name string) {
			f.during(history.Fault{Name: name}, func() {
				for i := range f.few() {
					all[i].Do("FLUSHALL")
				}
			})
			time.Sleep(f.counts)
		}
		return s
	}
}

func redlockOn(t *testing.T, all []*redistest.Server) *service {
	var clients []redis.UniversalClient
	for _, one := range all {
		clients = append(clients, one.Client())
	}
	first, err := redlock.New(clients, redlock.WithQuorumFences())
	require.NoError(t, err)
	require.NoError(t, first.Probe(t.Context(), distributed.Probe{Key: system + ":", TTL: short}))
	require.NoError(t, first.Vouch(t.Context()))
	require.NoError(t, first.Close())
	s := redisOf("", "", all...)
	s.minority, s.counts = len(all)/2, 4*short
	s.url = func(_ int, ways map[string]string) string { return "redlock://" + s.hosts(ways) + "?fences=quorum" }
	return s
}

// reachThree is five servers, of which each process reaches other three.
func reachThree(t *testing.T) *service {
	s := redlockOf(5)(t)
	s.minority = 1
	s.url = func(process int, ways map[string]string) string {
		reached := map[string]string{}
		for i, one := range s.servers {
			if reached[one.Addr] = ways[one.Addr]; (i-process%5+5)%5 >= 3 {
				reached[one.Addr] = testproc.Loopback(i + 1) // where no server listens
			}
		}
		return "redlock://" + s.hosts(reached) + "?fences=quorum"
	}
	return s
}

// clocks is five servers, of which some have their clocks set forward by a minute, and keep them so. They lose no data meanwhile: see
// docs/redlock.md.
func clocks(t *testing.T) *service {
	var all []*redistest.Server
	var set []*redistest.Clock
	for range 5 {
		one, clock := redistest.StartWithClock(t, time.Now())
		clock.Shift(0)
		all, set = append(all, one), append(set, clock)
	}
	s, ahead := redlockOn(t, all), [5]time.Duration{}
	s.stays = true
	s.own["clocks set forward"] = func(f *fleet, name string) {
		f.during(history.Fault{Name: name}, func() {
			for i := range f.few() {
				ahead[i] += time.Minute
				set[i].Shift(ahead[i])
			}
		})
		time.Sleep(f.counts)
	}
	return s
}

// database is a server that keeps what it has committed when it is killed.
func database(
	start func(dbtest.TB, ...dbtest.Option) *dbtest.Server, open func(url string) (*sql.DB, error), dialect sqllock.Dialect,
) func(t *testing.T) *service {
	return func(t *testing.T) *service {
		s := start(t, dbtest.NoSync())
		db, err := open(s.URL())
		require.NoError(t, err)
		require.NoError(t, sqllock.Migrate(t.Context(), db, dialect))
		require.NoError(t, db.Close())
		return &service{servers: []*testproc.Server{s.Server}, url: func(_ int, ways map[string]string) string { return s.URLAt(ways[s.Addr]) }}
	}
}

// file is SQLite's, which another program locks now and then.
func file(t *testing.T) *service {
	url := "sqlite://" + filepath.Join(testproc.TempDir(t, "chaos"), "locks.db")
	s := &service{url: func(int, map[string]string) string { return url }}
	s.own = map[string]func(*fleet, string){"file locked": func(f *fleet, name string) {
		db, err := sqlite.OpenDB(url)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		db.SetMaxOpenConns(1)
		do := func(statement string) error {
			_, err := db.ExecContext(context.Background(), statement)
			return err
		}
		f.away(name, func() {
			redistest.Eventually(t, time.Minute, "the file's lock", func() bool { return do("BEGIN EXCLUSIVE") == nil })
		}, func() { require.NoError(t, do("ROLLBACK")) }, f.upTo(2*f.task.TTL))
	}}
	return s
}

func etcd(servers []*etcdtest.Server) *service {
	s := &service{servers: servers, minority: len(servers) / 2}
	s.url = func(_ int, ways map[string]string) string { return "etcd://" + s.hosts(ways) }
	return s
}

func zookeeper(servers []*zktest.Server) *service {
	s := &service{minority: len(servers) / 2}
	for _, one := range servers {
		s.servers = append(s.servers, one.Server)
	}
	s.url = func(_ int, ways map[string]string) string { return "zk://" + s.hosts(ways) }
	return s
}

func apiServer(t *testing.T) *service {
	one := kubetest.StartReal(t)
	s := &service{servers: []*testproc.Server{one.Server}, request: "\x17\x03\x03"} // a record of TLS
	s.url = func(_ int, ways map[string]string) string {
		return "kubernetes://" + kubetest.Namespace + "?kubeconfig=" + one.Kubeconfig(t, ways[one.Addr])
	}
	return s
}

func memcached(t *testing.T) *service {
	s := &service{servers: []*testproc.Server{dbtest.Memcached(t)}, stays: true}
	s.url = func(_ int, ways map[string]string) string { return "memcached://" + s.hosts(ways) + "?unfenced=true" }
	return s
}

package archtest

// room is a directory and what its packages may import. Packages in directories below belong to it, unless some of these
// are rooms themselves: then it has the one package of its own directory, except for programs.
type room struct {
	path    string   // below the repository; "." is its root
	what    string   // is in it, for CONTRIBUTING.md
	knows   []string // rooms it may import
	imports []string // what it may import from other modules; below is included
	// sealed is all that a program links from other modules when it imports the room, however indirectly.
	// Rooms without it are judged by their own imports only.
	sealed []string
	// program says that only tests import it, or nobody, so that it may link what is an application's choice.
	program bool
}

// public, as a room that is known, stands for every room further down that is not internal.
const public = "*"

// nothing seals a room: it links the standard library and other rooms like it.
var nothing = []string{}

// telemetry is the OpenTelemetry API and what it brings along. The SDK is not part of it: see neverLinked.
var telemetry = []string{
	"go.opentelemetry.io/otel", "go.opentelemetry.io/auto/sdk", "github.com/go-logr", "github.com/cespare/xxhash/v2",
}

// underRoot is all that the root brings along.
var underRoot = telemetry

// neverLinked is what no room that can be imported may link, whatever its imports allow.
var neverLinked = []string{
	"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "github.com/prometheus", "github.com/stretchr/testify", "go.uber.org/goleak",
}

// backend is what every backend knows: the contract, and three tools without a thought of their own, texts of errors, a heap of deadlines
// and the id of the process.
var backend = []string{"internal/keyless", "distributed", "distributed/keepalive", "internal/deadline", "internal/identity"}

const zookeeperClient = "github.com/go-zookeeper/zk"

const memcachedClient = "github.com/bradfitz/gomemcache"

const redisClient = "github.com/redis/go-redis/v9"

var grpcClient = []string{"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto"}

const rpcstatus = "middleware/grpcguard/internal/rpcstatus"

// rooms are listed from the bottom to the top: a room knows only such as stand before it. CONTRIBUTING.md shows them.
var rooms = []room{
	{path: "internal/keyless", what: "texts of errors that hold no key", sealed: nothing},
	{path: "local", what: "tier 1: a fair queue per key", knows: []string{"internal/keyless"}, sealed: nothing},
	{path: "internal/nametext", what: "the rule for names, and printing what callers gave us", sealed: nothing},
	{path: "internal/heldkey", what: "the context key of the innermost lock", sealed: nothing},
	{path: "internal/deadline", what: "many deadlines on one timer", sealed: nothing},
	{path: "internal/identity", what: "the ids of this process and its Lockers", sealed: nothing},
	{path: "internal/race", what: "whether a test runs under the race detector", sealed: nothing},
	{path: "internal/testscope", what: "which tests run when", sealed: nothing},
	{path: "internal/testseed", what: "seeds of random tests", knows: []string{"internal/race"}, sealed: nothing},
	{path: "internal/testclock", what: "times by a clock that stood still or was set", sealed: nothing},
	{path: "internal/testpicture", what: "pictures of pages, made small", sealed: nothing},
	{path: "internal/archtest", what: "the test of this table", sealed: nothing},
	{path: "distributed", what: "tier 2: the contract of a backend", knows: []string{"internal/keyless"}, sealed: nothing},
	{
		path: "distributed/keepalive", what: "renewal and expiry of a backend's leases",
		knows: []string{"internal/keyless", "distributed", "internal/deadline"}, sealed: nothing,
	},
	{path: "internal/parts", what: "what several backends are made of: background tasks, fences, observers", knows: []string{"internal/keyless", "distributed"}, sealed: nothing},
	{path: "distributed/wrap", what: "decorating a backend", knows: []string{"distributed"}, sealed: nothing},
	{
		path: "distributed/locktest", what: "the suite every backend must pass",
		knows: []string{"distributed", "internal/testseed"}, sealed: nothing,
	},
	{
		path: "distributed/driver", what: "the client half of a backend: what becomes of a request, above a driver for one service",
		knows: []string{"internal/keyless", "distributed", "distributed/keepalive", "internal/deadline", "internal/parts"}, sealed: nothing,
	},
	{path: "distributed/driver/internal/judge", what: "users of a lock in any order, for tests of drivers", knows: []string{"distributed", "internal/testscope", "internal/testseed"}, sealed: nothing},
	{path: "distributed/memlock", what: "backend in memory", knows: append([]string{"internal/parts"}, backend...), sealed: nothing},
	{path: "internal/passfile", what: "passwords from files and settings", sealed: nothing},
	{path: "internal/tlsfile", what: "settings of TLS from files that a URL names", knows: []string{"internal/passfile"}, sealed: nothing},
	{path: "internal/openurl", what: "what is alike in the URLs and options of backends", knows: []string{"internal/tlsfile", "distributed"}, sealed: nothing},
	{path: "internal/redisopts", what: "Redis options and URLs", knows: []string{"internal/openurl", "internal/tlsfile"}, imports: []string{redisClient}},
	{path: "internal/testproc", what: "server processes for tests, and a TCP proxy with faults", sealed: nothing},
	{path: "internal/tlstest", what: "certificates, and the table of what backends refuse over TLS", knows: []string{"internal/testproc", "distributed"}, sealed: nothing},
	{path: "internal/dbtest", what: "PostgreSQL, MariaDB and memcached servers for tests", knows: []string{"internal/race", "internal/testproc", "internal/testscope"}, sealed: nothing},
	{path: "internal/redistest", what: "Redis servers for tests", knows: []string{"internal/testproc"}, imports: []string{redisClient}},
	{
		path: "internal/conn", what: "connections to Redis servers: pipelines, timeouts, sorted errors",
		knows: []string{"internal/keyless", "internal/passfile", "internal/openurl", "internal/redisopts", "internal/parts", "distributed"}, imports: []string{redisClient},
	},
	{
		path: "distributed/redislock", what: "backend on Redis",
		knows:   []string{"internal/keyless", "internal/openurl", "internal/redisopts", "internal/conn", "internal/parts", "internal/identity", "distributed", "distributed/driver"},
		imports: []string{redisClient},
	},
	{
		path: "distributed/redlock", what: "backend on independent Redis servers",
		knows: []string{"internal/keyless", "internal/tlsfile", "internal/openurl", "internal/redisopts", "internal/conn", "internal/parts", "internal/identity", "distributed", "distributed/keepalive", "distributed/driver"}, imports: []string{redisClient},
	},

	{path: "internal/zktest", what: "ZooKeeper servers for tests", knows: []string{"internal/testproc"}, sealed: nothing},
	{
		path: "distributed/zklock", what: "backend on ZooKeeper",
		knows:   []string{"internal/keyless", "internal/passfile", "internal/openurl", "internal/parts", "internal/deadline", "distributed", "distributed/driver"},
		imports: []string{zookeeperClient},
	},
	{
		path: "distributed/driver/register", what: "a backend of a store of documents that are changed by compare-and-set",
		knows: []string{"internal/keyless", "distributed", "distributed/driver", "internal/parts"}, sealed: nothing,
	},
	{
		path: "distributed/memcachelock", what: "backend on memcached, without fences",
		knows:   []string{"internal/keyless", "distributed", "distributed/driver/register", "internal/parts", "internal/tlsfile"},
		imports: []string{memcachedClient},
	},

	{path: "internal/etcdtest", what: "etcd servers for tests", knows: []string{"internal/testproc"}, sealed: nothing},
	{
		path: "distributed/etcdlock", what: "backend on etcd", knows: []string{"internal/keyless", "internal/passfile", "internal/openurl", "internal/tlsfile", "internal/parts", "distributed", "distributed/driver"},
		imports: []string{"go.etcd.io/etcd/api/v3", "go.etcd.io/etcd/client/v3", "google.golang.org/grpc", "go.uber.org/zap"},
	},

	{path: "internal/crew", what: "goroutines that stay for the next job", sealed: nothing},
	{path: "distributed/sqllock", what: "backend in a database: PostgreSQL, MySQL, SQLite", knows: []string{"internal/keyless", "internal/crew", "distributed", "distributed/driver"}},
	{
		path: "distributed/sqllock/postgres", what: "PostgreSQL, and hand-overs that are pushed", knows: []string{"distributed", "distributed/sqllock", "internal/identity", "internal/openurl", "internal/tlsfile"},
		imports: []string{"github.com/jackc/pgx/v5"},
	},
	{
		path: "distributed/sqllock/mysql", what: "MySQL and MariaDB", knows: []string{"distributed", "distributed/sqllock", "internal/passfile", "internal/openurl", "internal/tlsfile"},
		imports: []string{"github.com/go-sql-driver/mysql"},
	},
	{
		path: "distributed/sqllock/sqlite", what: "SQLite", knows: []string{"distributed", "distributed/sqllock", "internal/openurl"},
		imports: []string{"golang.org/x/sys", "modernc.org/sqlite"},
	},

	{
		path: "internal/tenure", what: "one key's lease and the callers that use it",
		knows: []string{"internal/keyless", "distributed", "internal/deadline"}, sealed: nothing,
	},
	{
		path: "internal/outage", what: "what happens while the backend is unreachable",
		knows: []string{"internal/keyless", "distributed"}, sealed: nothing,
	},
	{
		path: "internal/report", what: "what is counted, measured, traced and logged of locks: values, on goroutines of their own",
		knows: []string{"internal/keyless", "internal/nametext", "distributed"}, imports: []string{"go.opentelemetry.io/otel"}, sealed: telemetry,
	},
	{
		path: "internal/hold", what: "what happens inside a lock: one caller's turn, lease and context, and its one way out",
		knows:   []string{"internal/keyless", "local", "internal/heldkey", "internal/deadline", "distributed", "internal/tenure", "internal/outage", "internal/report"},
		imports: []string{"go.opentelemetry.io/otel/trace"}, sealed: telemetry,
	},
	{
		path: ".", what: "package wllock: Locker, Do, Guard, Wrap, Acquire",
		knows: []string{
			"local", "internal/nametext", "internal/identity", "internal/outage", "internal/report", "internal/tenure", "internal/hold",
			"internal/crew", "distributed",
		},
		imports: []string{"go.opentelemetry.io/otel"}, sealed: underRoot,
	},

	{
		path: "internal/testlocker", what: "what tests of Lockers begin with, storms of faults, fleets of processes",
		knows:  []string{".", "distributed", "distributed/memlock", "internal/race", "internal/testproc", "internal/testscope", "internal/testseed"},
		sealed: underRoot,
	},
	{path: "internal/behavior", what: "tests of package wllock as programs see it", sealed: nothing},
	{path: "internal/problem", what: "HTTP problem details", sealed: nothing},
	{
		path: "middleware/httpguard", what: "locks around HTTP handlers", knows: []string{".", "internal/nametext", "internal/problem"},
		sealed: underRoot,
	},
	{
		path: "middleware/ratelimit", what: "rate limits for HTTP", knows: []string{"internal/nametext", "internal/problem"},
		imports: []string{"golang.org/x/time/rate"}, sealed: []string{"golang.org/x/time"},
	},
	{
		path: "middleware/ratelimit/redislimit", what: "rate limits counted in Redis",
		knows:   []string{"internal/redisopts", "internal/conn", "middleware/ratelimit"},
		imports: []string{"github.com/go-redis/redis_rate/v10", redisClient, "go.opentelemetry.io/otel"},
	},
	{path: rpcstatus, what: "the status of a refused gRPC call", imports: grpcClient},
	{path: "middleware/grpcguard", what: "locks around gRPC calls", knows: []string{".", "internal/heldkey", "internal/nametext", rpcstatus}, imports: grpcClient},
	{
		path: "middleware/grpcguard/grpclimit", what: "rate limits for gRPC",
		knows: []string{rpcstatus, "middleware/ratelimit"}, imports: grpcClient,
	},
	{
		path: "middleware/ginguard", what: "locks around handlers of gin", knows: []string{".", "internal/heldkey", "middleware/httpguard"},
		imports: []string{"github.com/gin-gonic/gin"},
	},
	{
		path: "middleware/echoguard", what: "locks around handlers of echo", knows: []string{".", "middleware/httpguard"},
		imports: []string{"github.com/labstack/echo/v5"},
	},
	{path: "debug", what: "a page of the locks of a process", knows: []string{".", "internal/nametext"}, sealed: underRoot},
	{
		path: "wllocktest", what: "Lockers and faults for tests of applications", knows: []string{".", "distributed", "distributed/memlock"},
		sealed: underRoot,
	},
	{
		path: "internal/guardtest", what: "tests of the guard of a web framework", program: true,
		knows: []string{".", "middleware/httpguard", "middleware/ratelimit", "wllocktest"}, imports: []string{"github.com/stretchr/testify"},
	},
	{
		path: "config", what: "a Locker from the environment",
		knows:   []string{".", "internal/nametext", "internal/identity", "internal/passfile", "internal/openurl", "internal/redisopts", "internal/tlsfile", "distributed", "distributed/memlock", "distributed/redislock", "distributed/redlock"},
		imports: []string{"github.com/kelseyhightower/envconfig"},
	},

	{
		path: "cmd/wllock", what: "the command line: run, who, ls, top, break, doctor", program: true,
		knows: []string{"internal/keyless", public, "internal/nametext", "internal/identity", "internal/passfile", "internal/openurl", "internal/redisopts", "internal/tlsfile"},
		imports: []string{
			redisClient, zookeeperClient, "github.com/urfave/cli/v3", "golang.org/x/sys", "golang.org/x/term",
			"go.etcd.io/etcd/client/v3", "modernc.org/sqlite", "go.uber.org/zap", "google.golang.org/grpc", // of the etcd client
		},
	},
	{
		path: "example", what: "flash sale, overload, README programs, filelock: a backend on files", knows: []string{public}, program: true,
		imports: []string{
			"modernc.org/sqlite", "github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5", "github.com/mattn/go-isatty",
			"go.opentelemetry.io/otel", "github.com/prometheus/client_golang", "github.com/prometheus/procfs", "golang.org/x/sys",
		},
	},
	{
		path: "example/frameworks", what: "httpguard with chi and echo v4", program: true, imports: []string{"github.com/labstack/echo/v4"},
	},
	{
		path: "example/recipes", what: "the code of docs/recipes.md", knows: []string{public}, program: true,
		imports: []string{
			"github.com/robfig/cron/v3", "github.com/go-co-op/gocron/v2", "github.com/jackc/pgx/v5", "gorm.io/gorm", redisClient,
			"go.opentelemetry.io/otel", "github.com/prometheus/client_golang", "google.golang.org/grpc", "google.golang.org/protobuf",
		},
	},
	{
		path: "example/migrating", what: "other lock libraries beside wllock, on the same keys", knows: []string{public}, program: true,
		imports: []string{redisClient, "github.com/go-co-op/gocron/v2"},
	},
	{
		path: "benchmarks", what: "wllock beside other lock libraries", program: true,
		knows: []string{public, "internal/testproc", "internal/zktest", "internal/dbtest", "internal/etcdtest"},
		imports: []string{
			redisClient, zookeeperClient, memcachedClient, "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4", "github.com/redis/rueidis",
			"go.etcd.io/etcd/client/v3", "go.uber.org/zap", "github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5", "modernc.org/sqlite",
			"github.com/HdrHistogram/hdrhistogram-go", "golang.org/x/sys", "golang.org/x/sync",
		},
	},
	{path: "test", what: "tests of the whole stack, and with SDKs", knows: []string{public}, program: true},
}

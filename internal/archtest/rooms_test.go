package archtest

// room is a directory and who its packages may know. Packages in directories below belong to it, unless some of these
// are rooms themselves: then it has the one package of its own directory, except for programs.
type room struct {
	path    string   // below the module; "." is its root
	knows   []string // rooms it may import
	imports []string // what it may import from other modules; below is included
	// sealed is all that a program links from other modules when it imports the room, however indirectly.
	// Rooms without it are judged by their own imports only.
	sealed []string
	// program says that nobody imports it, so that it may link what is an application's choice.
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

const breaker = "github.com/sony/gobreaker/v2"

// underRoot is all that the root brings along.
var underRoot = append([]string{breaker}, telemetry...)

// neverLinked is what no room that can be imported may link, whatever its imports allow.
var neverLinked = []string{
	"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "github.com/prometheus", "github.com/stretchr/testify", "go.uber.org/goleak",
}

// backend is what every backend knows: the contract, and a heap of deadlines, which is a tool without a thought of its
// own.
var backend = []string{"distributed", "distributed/keepalive", "internal/deadline"}

const redisClient = "github.com/redis/go-redis/v9"

var grpcClient = []string{"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto"}

const rpcstatus = "middleware/grpcguard/internal/rpcstatus"

// rooms are listed from the bottom to the top: a room knows only such as stand before it. Some are yet to be built.
var rooms = []room{
	{path: "local", sealed: nothing},
	{path: "internal/nametext", sealed: nothing},
	{path: "internal/deadline", sealed: nothing},
	{path: "distributed", sealed: nothing},
	{path: "distributed/keepalive", knows: []string{"distributed", "internal/deadline"}, sealed: nothing},
	{path: "distributed/wrap", knows: []string{"distributed"}, sealed: nothing},
	{path: "internal/watch", knows: []string{"distributed"}, sealed: nothing},
	{path: "internal/tenure", knows: []string{"distributed", "internal/deadline", "internal/watch"}, sealed: nothing},

	{
		path: "internal/outage", knows: []string{"distributed", "internal/watch"},
		imports: []string{breaker}, sealed: []string{breaker},
	},

	{path: "internal/race", sealed: nothing},
	{path: "internal/testseed", sealed: nothing},
	{path: "internal/redisopts", imports: []string{redisClient}},
	{path: "distributed/locktest", knows: []string{"distributed", "internal/testseed", "internal/watch"}, sealed: nothing},
	{path: "distributed/memlock", knows: backend, sealed: nothing},
	{path: "distributed/redislock", knows: append([]string{"internal/redisopts"}, backend...), imports: []string{redisClient}},
	{path: "distributed/redlock", knows: backend, imports: []string{redisClient}},
	{path: "distributed/zklock", knows: backend, imports: []string{"github.com/go-zookeeper/zk"}},
	{path: "distributed/sqllock", knows: backend, sealed: nothing},

	{
		path: ".", knows: []string{"local", "internal/nametext", "internal/deadline", "internal/outage", "internal/tenure", "distributed"},
		imports: []string{"go.opentelemetry.io/otel"}, sealed: underRoot,
	},

	{path: "internal/problem", sealed: nothing},
	{path: "middleware/httpguard", knows: []string{".", "internal/problem"}, sealed: underRoot},
	{path: rpcstatus, imports: grpcClient},
	{path: "middleware/grpcguard", knows: []string{".", rpcstatus}, imports: grpcClient},
	{
		path: "middleware/ratelimit", knows: []string{"internal/nametext", "internal/problem"},
		imports: []string{"golang.org/x/time/rate"}, sealed: []string{"golang.org/x/time"},
	},
	{
		path: "middleware/ratelimit/redislimit", knows: []string{"internal/redisopts", "middleware/ratelimit"},
		imports: []string{"github.com/go-redis/redis_rate/v10", redisClient},
	},
	{
		path: "middleware/grpcguard/grpclimit", knows: []string{rpcstatus, "middleware/ratelimit"},
		imports: grpcClient,
	},
	{path: "debug", knows: []string{".", "internal/nametext"}, sealed: underRoot},
	{path: "wllocktest", knows: []string{".", "distributed/memlock"}, sealed: underRoot},
	{
		path:    "config",
		knows:   []string{".", "internal/nametext", "internal/redisopts", "distributed", "distributed/memlock", "distributed/redislock", "distributed/redlock"},
		imports: []string{"github.com/kelseyhightower/envconfig"},
	},

	{path: "internal/redistest", imports: []string{redisClient}},
	{path: "internal/archtest", sealed: nothing},
	{
		path: "cmd/wllock", knows: []string{public}, program: true,
		imports: []string{redisClient, "golang.org/x/sys", "golang.org/x/term"},
	},
	{
		path: "example", knows: []string{public}, program: true,
		imports: []string{
			"modernc.org/sqlite", "github.com/mattn/go-isatty", "go.opentelemetry.io/otel",
			"github.com/prometheus/client_golang", "golang.org/x/sys",
		},
	},
	{
		path: "example/frameworks", program: true,
		imports: []string{"github.com/gin-gonic/gin", "github.com/labstack/echo/v4"},
	},
	{
		path: "benchmarks", knows: []string{public}, program: true,
		imports: []string{
			redisClient, "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4", "github.com/redis/rueidis", "golang.org/x/sys",
		},
	},
	{path: "test", program: true},
}

package archtest

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// room is a directory and what its packages may import. Packages in directories below belong to it, unless some of these
// are rooms themselves: then it has the one package of its own directory, except for programs.
type room struct {
	path   string   // below the repository; "." is its root
	module bool     // the guide has it in bold
	knows  []string // rooms it may import
	outside
}

// outside is what a room may have from other modules.
type outside struct {
	imports []string // by its own packages; below is included
	// sealed is all that a program links from other modules when it imports the room, however indirectly.
	// Rooms without it are judged by their own imports only.
	sealed []string
	// program says that only tests import it, or nobody, so that it may link what is an application's choice.
	program bool
}

// public, as a room that is known, stands for every room further down that is not internal.
const public = "*"

// aRow is a row of the guide's table: a directory, what it is, and what it imports.
var aRow = regexp.MustCompile("^\\| (\\*\\*)?`([^`]+)`(?:\\*\\*)? \\| .+ \\| (.*) \\|$")

// guide reads the table of CONTRIBUTING.md, from the bottom to the top: a room knows only such as stand before it.
func guide(t *testing.T) (rooms []room) {
	t.Helper()
	_, table, found := strings.Cut(read(t, filepath.Join(root, "CONTRIBUTING.md")), "\n| room | what it is | imports |\n|---|---|---|\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.SplitSeq(table, "\n") {
		cells := aRow.FindStringSubmatch(row)
		require.NotNil(t, cells, row)
		r := room{path: cells[2], module: cells[1] != "", outside: outside{sealed: nothing}}
		for name := range strings.FieldsFuncSeq(cells[3], func(c rune) bool { return c == ',' }) {
			switch name = strings.TrimSpace(name); name {
			case "wllock":
				name = "."
			case "all that is public":
				name = public
			}
			r.knows = append(r.knows, name)
		}
		if has, ok := outsides[r.path]; ok {
			r.outside = has
		}
		rooms = append(rooms, r)
	}
	slices.Reverse(rooms)
	return rooms
}

// nothing seals a room: it links the standard library and other rooms like it.
var nothing = []string{}

// telemetry is the OpenTelemetry API and what it brings along: all that the root does. The SDK is not part of it: see neverLinked.
var telemetry = []string{
	"go.opentelemetry.io/otel", "go.opentelemetry.io/auto/sdk", "github.com/go-logr", "github.com/cespare/xxhash/v2",
}

// neverLinked is what no room that can be imported may link, whatever its imports allow.
var neverLinked = []string{
	"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "github.com/prometheus", "github.com/stretchr/testify", "go.uber.org/goleak",
}

const (
	zookeeperClient = "github.com/go-zookeeper/zk"
	memcachedClient = "github.com/bradfitz/gomemcache"
	redisClient     = "github.com/redis/go-redis/v9"
	etcdClient      = "go.etcd.io/etcd/client/v3"
	natsClient      = "github.com/nats-io/nats.go"
	kubeClient      = "k8s.io/client-go"
	awsClient       = "github.com/aws/aws-sdk-go-v2"
	postgresClient  = "github.com/jackc/pgx/v5"
	mysqlClient     = "github.com/go-sql-driver/mysql"
	sqlite          = "modernc.org/sqlite"
	otel            = "go.opentelemetry.io/otel"
)

var (
	onRedis   = outside{imports: []string{redisClient}}
	overGRPC  = outside{imports: []string{"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto"}}
	underRoot = outside{sealed: telemetry}
	measured  = outside{imports: []string{otel}, sealed: telemetry}
)

// outsides are of the rooms that have something from other modules, or may. A room that is not listed has nothing.
var outsides = map[string]outside{
	"internal/redisopts":           onRedis,
	"internal/redistest":           onRedis,
	"internal/conn":                onRedis,
	"distributed/redislock":        onRedis,
	"distributed/redlock":          onRedis,
	"distributed/zklock":           {imports: []string{zookeeperClient}},
	"distributed/memcachelock":     {imports: []string{memcachedClient}},
	"distributed/etcdlock":         {imports: []string{"go.etcd.io/etcd/api/v3", etcdClient, "google.golang.org/grpc", "go.uber.org/zap"}},
	"distributed/kubelock":         {imports: []string{kubeClient, "k8s.io/api/coordination/v1", "k8s.io/apimachinery"}},
	"distributed/natslock":         {imports: []string{natsClient}},
	"distributed/s3lock":           {imports: []string{awsClient, "github.com/aws/smithy-go"}},
	"distributed/dynamolock":       {imports: []string{awsClient, "github.com/aws/smithy-go"}},
	"distributed/sqllock":          {},
	"distributed/sqllock/postgres": {imports: []string{postgresClient}},
	"distributed/sqllock/mysql":    {imports: []string{mysqlClient}},
	"distributed/sqllock/sqlite":   {imports: []string{"golang.org/x/sys", sqlite}},

	"internal/report":     measured,
	"internal/hold":       {imports: []string{otel + "/trace"}, sealed: telemetry},
	".":                   measured,
	"internal/testlocker": underRoot,
	"debug":               underRoot,
	"fenced":              underRoot,
	"wllocktest":          underRoot,
	"config":              {imports: []string{"github.com/kelseyhightower/envconfig"}},

	"middleware/httpguard":                    underRoot,
	"middleware/ratelimit":                    {imports: []string{"golang.org/x/time/rate"}, sealed: []string{"golang.org/x/time"}},
	"middleware/ratelimit/redislimit":         {imports: []string{"github.com/go-redis/redis_rate/v10", redisClient, otel}},
	"middleware/grpcguard/internal/rpcstatus": overGRPC,
	"middleware/grpcguard":                    overGRPC,
	"middleware/grpcguard/grpclimit":          overGRPC,
	"middleware/ginguard":                     {imports: []string{"github.com/gin-gonic/gin"}},
	"middleware/echoguard":                    {imports: []string{"github.com/labstack/echo/v5"}},

	"internal/guardtest": {program: true, imports: []string{"github.com/stretchr/testify"}},
	"cmd/wllock": {program: true, imports: []string{
		redisClient, zookeeperClient, natsClient, "github.com/urfave/cli/v3", "golang.org/x/sys", "golang.org/x/term", sqlite,
		etcdClient, "go.uber.org/zap", "google.golang.org/grpc", // of the etcd client
		awsClient,
	}},
	"example": {program: true, imports: []string{
		sqlite, mysqlClient, postgresClient, "github.com/mattn/go-isatty", otel, "github.com/prometheus/client_golang",
		"github.com/prometheus/procfs", "golang.org/x/sys",
	}},
	"example/frameworks": {program: true, imports: []string{"github.com/labstack/echo/v4"}},
	"example/recipes": {program: true, imports: []string{
		"github.com/robfig/cron/v3", "github.com/go-co-op/gocron/v2", "github.com/pressly/goose/v3", postgresClient, "gorm.io/gorm", redisClient, otel,
		"github.com/prometheus/client_golang", "google.golang.org/grpc", "google.golang.org/protobuf",
	}},
	"example/migrating": {program: true, imports: []string{redisClient}},
	"example/doors": {program: true, imports: []string{
		"github.com/golang-migrate/migrate/v4", "github.com/caddyserver/certmagic", "github.com/tus/tusd/v2", "github.com/go-co-op/gocron/v2",
	}},
	"benchmarks": {program: true, imports: []string{
		redisClient, zookeeperClient, memcachedClient, "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4", "github.com/redis/rueidis",
		etcdClient, "go.uber.org/zap", mysqlClient, postgresClient, sqlite, "github.com/HdrHistogram/hdrhistogram-go", "golang.org/x/sys",
		"golang.org/x/sync",
	}},
	"test":           {program: true},
	"test/simulated": {program: true},
	"test/history":   {program: true, imports: []string{"github.com/anishathalye/porcupine", "golang.org/x/sys"}},
}

package example

// imported are the packages that fragments name.
var imported = map[string]string{
	"context": "context", "errors": "errors", "http": "net/http", "log": "log", "slog": "log/slog", "sql": "database/sql", "testing": "testing", "time": "time", "url": "net/url",

	"config": "github.com/wllock/wllock/config", "debug": "github.com/wllock/wllock/debug",
	"distributed": "github.com/wllock/wllock/distributed", "keepalive": "github.com/wllock/wllock/distributed/keepalive",
	"locktest": "github.com/wllock/wllock/distributed/locktest", "memlock": "github.com/wllock/wllock/distributed/memlock",
	"redislock": "github.com/wllock/wllock/distributed/redislock", "redlock": "github.com/wllock/wllock/distributed/redlock",
	"etcdlock": "github.com/wllock/wllock/distributed/etcdlock", "zklock": "github.com/wllock/wllock/distributed/zklock",
	"memcachelock": "github.com/wllock/wllock/distributed/memcachelock", "sqllock": "github.com/wllock/wllock/distributed/sqllock",
	"postgres": "github.com/wllock/wllock/distributed/sqllock/postgres", "mysql": "github.com/wllock/wllock/distributed/sqllock/mysql",
	"sqlite":    "github.com/wllock/wllock/distributed/sqllock/sqlite",
	"httpguard": "github.com/wllock/wllock/middleware/httpguard", "ratelimit": "github.com/wllock/wllock/middleware/ratelimit",
	"redislimit": "github.com/wllock/wllock/middleware/ratelimit/redislimit", "grpcguard": "github.com/wllock/wllock/middleware/grpcguard",
	"ginguard": "github.com/wllock/wllock/middleware/ginguard", "echoguard": "github.com/wllock/wllock/middleware/echoguard",
	"doors": "github.com/wllock/wllock/example/doors", "migrating": "github.com/wllock/wllock/example/migrating", "wllock": "github.com/wllock/wllock", "wllocktest": "github.com/wllock/wllock/wllocktest",

	"gin": "github.com/gin-gonic/gin", "echo": "github.com/labstack/echo/v5", "gocron": "github.com/go-co-op/gocron/v2",
	"grpc": "google.golang.org/grpc", "memcache": "github.com/bradfitz/gomemcache/memcache", "redis": "github.com/redis/go-redis/v9",

	"shop": "github.com/wllock/wllock/example/blocks/shop", "bank": "github.com/wllock/wllock/example/blocks/bank",
}

// What a generator makes of an application's messages.
const (
	shopMessages = `package shop

import "google.golang.org/protobuf/proto"

type OrderRequest struct{ proto.Message }

func (*OrderRequest) GetProductId() string { return "" }
`
	bankMessages = `package bank

import "google.golang.org/protobuf/proto"

type TransferRequest struct{ proto.Message }

func (*TransferRequest) GetFrom() string { return "" }
func (*TransferRequest) GetTo() string   { return "" }
`
)

// granted are declarations of what fragments use without a word, by name; with the page before it where pages differ.
var granted = map[string]string{
	"ctx":     "var ctx context.Context",
	"backend": "var backend distributed.Backend",
	"call":    "func call(context.Context) error { return nil }",
	"locker":  "var locker *wllock.Locker",
	"mux":     "var mux *http.ServeMux",
	"admin":   "var admin *http.ServeMux",
	"guard":   "var guard func(http.Handler) http.Handler",
	"client":  "var client *redis.Client",

	"orderHandler": "var orderHandler http.Handler",
	"redisClient":  "var redisClient *redis.Client",
	"customerOf":   "var customerOf func(*http.Request) (string, error)",
	"accounts":     "func accounts(from, to string) []wllock.Resource { return nil }",
	"limits":       "var limits func(http.Handler) http.Handler",
	"router":       "var router *gin.Engine\nvar order gin.HandlerFunc",
	"e":            "var e *echo.Echo\nvar order echo.HandlerFunc",
	"sell":         "func sell(ctx context.Context, product string, fence uint64) error { return nil }",
	"errTryLater":  "var errTryLater error",
	"work":         "func work(context.Context) error { return nil }",
	"fn":           "func fn(context.Context) error { return nil }",
	"b":            backendFields,
	"Order":        "type Order struct{ Product string }\nvar left, number int\nvar ErrSoldOut error",
}

const backendFields = `var b struct {
	keeper *keepalive.Keeper
	renew func(context.Context, []distributed.Lease)
}
type rest struct{ distributed.Lease } // of the methods, which the page is about
var l *struct {
	keepalive.Lease
	rest
}
var ttl time.Duration
var sent time.Time`

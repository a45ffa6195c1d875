// Command service is a complete service: orders over HTTP and gRPC, one at a time for each product over all its
// replicas, with metrics, a page of its locks, probes, and a graceful end. kubernetes.yaml runs it.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/debug"
	"github.com/wllock/wllock/example/recipes"
	"github.com/wllock/wllock/example/recipes/service/shoppb"
	"github.com/wllock/wllock/fenced"
	"github.com/wllock/wllock/middleware/grpcguard"
	"github.com/wllock/wllock/middleware/httpguard"
)

const (
	wait     = 2 * time.Second  // for the lock
	grace    = 15 * time.Second // for requests under way at the end: more than wait and WithLockTimeMax (10 s)
	pingTime = time.Second      // less than the probe's time-out

	readTime = 5 * time.Second // for clients that never finish their header or their body

	// customerHeader is set by the gateway in front, which authenticates customers and passes on none that they set
	// themselves. An order's id is the customer's own.
	customerHeader = "X-Customer"
)

type service struct {
	shoppb.UnimplementedShopServer
	shop   *recipes.Shop
	ending atomic.Bool
}

func (s *service) Order(ctx context.Context, r *shoppb.OrderRequest) (*shoppb.OrderResponse, error) {
	order := recipes.Order{Customer: only(metadata.ValueFromIncomingContext(ctx, customerHeader)), ID: r.GetOrderId(), Product: r.GetProductId()}
	left, err := s.shop.Sell(ctx, order) // reentrant: the guard has the lock
	switch {
	case errors.Is(err, recipes.ErrSoldOut):
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, recipes.ErrNoProduct):
		return nil, status.Error(codes.NotFound, err.Error())
	case errors.Is(err, recipes.ErrNoOrder):
		return nil, status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, recipes.ErrOther):
		return nil, status.Error(codes.AlreadyExists, err.Error())
	}
	return &shoppb.OrderResponse{Left: left}, err
}

// only returns the one value of a header. None is as bad as several, of which a client may have added one.
func only(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return ""
}

func (s *service) order(w http.ResponseWriter, r *http.Request) {
	left, err := s.shop.Sell(r.Context(), recipes.Order{
		Customer: only(r.Header.Values(customerHeader)), ID: r.Header.Get("Idempotency-Key"), Product: r.PathValue("product"),
	})
	switch {
	case err == nil:
		_ = json.NewEncoder(w).Encode(map[string]int64{"left": left})
	case errors.Is(err, recipes.ErrSoldOut):
		http.Error(w, err.Error(), http.StatusGone)
	case errors.Is(err, recipes.ErrNoProduct):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, recipes.ErrNoOrder):
		http.Error(w, "an order needs a customer and an Idempotency-Key", http.StatusBadRequest)
	case errors.Is(err, recipes.ErrOther):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case r.Context().Err() == nil: // after a lost lock, the guard answers
		slog.ErrorContext(r.Context(), "order failed", "error", err)
		http.Error(w, "please try again", http.StatusServiceUnavailable)
	}
}

// ready asks the backend, because this service does nothing without locks. Liveness must not ask: during
// an outage it would restart all replicas.
func (s *service) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pingTime)
	defer cancel()
	if err := s.shop.Locker.Ping(ctx); err != nil || s.ending.Load() {
		http.Error(w, "no locks, or at its end", http.StatusServiceUnavailable)
	}
}

func (s *service) serve(ctx context.Context) (err error) {
	guard := httpguard.New(s.shop.Locker, "product", httpguard.PathValue("product"),
		httpguard.WithCallOptions(wllock.WithWait(wait)))
	public, admin := http.NewServeMux(), http.NewServeMux()
	public.Handle("POST /orders/{product}", guard(http.HandlerFunc(s.order)))
	admin.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	admin.HandleFunc("GET /readyz", s.ready)
	admin.Handle("GET /metrics", promhttp.Handler())
	admin.Handle("GET /debug/wllock", debug.Handler(s.shop.Locker))

	key := grpcguard.KeyFrom(func(r *shoppb.OrderRequest) string { return r.GetProductId() })
	calls := grpc.NewServer(grpc.UnaryInterceptor(grpcguard.UnaryServerInterceptor(
		s.shop.Locker, "product", key, grpcguard.WithCallOptions(wllock.WithWait(wait)))))
	shoppb.RegisterShopServer(calls, s)
	orders := &http.Server{Handler: public, ReadTimeout: readTime}
	operators := &http.Server{Handler: admin, ReadTimeout: readTime}

	failed := make(chan error, 3)
	for name, server := range map[string]interface{ Serve(l net.Listener) error }{
		"HTTP": orders, "GRPC": calls, "ADMIN": operators,
	} {
		addr := os.Getenv(name + "_ADDR")
		if addr == "" { // or it would be a random port of every address
			return errors.New(name + "_ADDR is not set")
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		slog.InfoContext(ctx, "listening", "what", name, "addr", l.Addr())
		go func() { failed <- server.Serve(l) }()
	}
	select {
	case err = <-failed:
	case <-ctx.Done(): // SIGTERM
	}
	s.ending.Store(true)
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	defer context.AfterFunc(limit, calls.Stop)()
	var ended sync.WaitGroup
	ended.Go(calls.GracefulStop) // first the requests: they release their locks themselves
	err = errors.Join(err, orders.Shutdown(limit))
	ended.Wait()
	err = errors.Join(err, s.shop.Locker.Close(limit)) // then the Locker, which closes its backend
	return errors.Join(err, operators.Close())         // probes and metrics last
}

func run(ctx context.Context) (err error) {
	settings, err := config.FromEnv()
	if err != nil {
		return err
	}
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	fences, err := fenced.New(db, fenced.PostgreSQL)
	if err == nil {
		err = fences.Migrate(ctx)
	}
	if err != nil {
		return err
	}
	exporter, err := prometheus.New()
	if err != nil {
		return err
	}
	meters := metric.NewMeterProvider(metric.WithReader(exporter))
	defer func() { err = errors.Join(err, meters.Shutdown(context.WithoutCancel(ctx))) }()
	locker, err := settings.Open(ctx, wllock.WithLogger(slog.Default()), wllock.WithMeterProvider(meters))
	if err != nil {
		return err
	}
	return (&service{shop: &recipes.Shop{Locker: locker, Fences: fences}}).serve(ctx)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.ErrorContext(ctx, "the service ended", "error", err)
		os.Exit(1)
	}
}

package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/debug"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/example/flashsale/internal/sale"
	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
	"github.com/wllock/wllock/middleware/httpguard"
)

const (
	servedProduct = "1000"
	servedPool    = 4                // enough for the orders that a Locker lets in at once, which is one per product
	graceTime     = 15 * time.Second // for requests in flight to end; below the 30 s after which most orchestrators kill
	headerTime    = 5 * time.Second  // for clients that never finish their header
)

// store is the shop as a server.
type store struct {
	shop    *sqlshop.Shop
	locker  *wllock.Locker
	metrics *prometheus.Registry
	log     *slog.Logger
	set     sale.Settings
	stderr  io.Writer
}

// Serve serves the page and the store until ctx ends.
func Serve(ctx context.Context, s sale.Settings, stderr io.Writer) error {
	backend, err := s.OpenBackend(ctx, true)
	if err != nil {
		return err
	}
	defer func() { _ = backend.Close() }()
	if err := backend.Ping(ctx); err != nil {
		return err
	}
	store, err := openStore(ctx, s, backend, stderr)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Serve)
	if err != nil {
		return errors.Join(err, store.close(ctx))
	}
	fmt.Fprintf(stderr, "flashsale: http://%v/ shows a sale in the browser; POST /orders/%s, GET /metrics and /debug/wllock are this server's own shop\n",
		listener.Addr(), servedProduct)
	return store.serveUntil(ctx, listener)
}

func openStore(ctx context.Context, s sale.Settings, b distributed.Backend, stderr io.Writer, opts ...wllock.Option) (st *store, err error) {
	st = &store{metrics: prometheus.NewRegistry(), log: slog.New(slog.NewTextHandler(stderr, nil)), set: s, stderr: stderr}
	if err := st.openShop(ctx); err != nil {
		return st, errors.Join(err, st.close(ctx))
	}
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(st.metrics)) // it is asked, so nothing has to be shut down
	if err == nil {
		about := resource.NewSchemaless(attribute.String("service.name", "flashsale"))
		meters := metric.NewMeterProvider(metric.WithReader(exporter), metric.WithResource(about))
		st.locker, err = wllock.New("flashsale", b, append([]wllock.Option{
			wllock.WithThreshold(s.Threshold), wllock.WithLeaseTTL(s.TTL), wllock.WithMeterProvider(meters), wllock.WithLogger(st.log),
		}, opts...)...)
	}
	if err != nil {
		err = errors.Join(err, st.close(ctx))
	}
	return st, err
}

// openShop opens the shop of the server: in a database of its own, or in that of -db, which several servers may share.
func (s *store) openShop(ctx context.Context) (err error) {
	shared, think := s.set.DB != "", func(ctx context.Context) error { return sqlshop.Sleep(ctx, s.set.Think) }
	if s.shop, err = sqlshop.Open(cmp.Or(s.set.DB, sqlshop.Temporary), servedPool, think); err != nil {
		return err
	}
	switch {
	case shared:
		fmt.Fprintf(s.stderr, "flashsale: uses the tables %s, creates what is missing, and touches no other\n", sqlshop.Tables(s.set.DB))
	case s.set.Backend != sale.MemoryURL: // which suggests that there are other servers
		fmt.Fprintln(s.stderr, "flashsale: the stock is this server's own; -db FILE or a database is for servers that share one")
	}
	left, err := s.shop.Join(ctx, servedProduct, s.set.Stock)
	if err == nil && shared {
		fmt.Fprintf(s.stderr, "flashsale: %d pieces in stock\n", left)
	}
	return err
}

// close runs after the requests: what the Locker releases they have started.
func (s *store) close(ctx context.Context) (err error) {
	if s.locker != nil {
		err = s.locker.Close(ctx)
	}
	if s.shop != nil {
		s.shop.Close()
	}
	return err
}

// handler serves the pages for operators beside the shop; a real service has a separate listener for them.
func (s *store) handler() *http.ServeMux {
	guard := httpguard.New(s.locker, "product", httpguard.PathValue("id"),
		httpguard.WithCallOptions(wllock.WithWait(s.set.Wait)), httpguard.WithBodyBuffer(1<<10))
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", guard(http.HandlerFunc(s.order)))
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{}))
	mux.Handle("GET /debug/wllock", debug.Handler(s.locker))
	return mux
}

// order runs under the lock. If that is lost it writes nothing: the guard answers.
func (s *store) order(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") != servedProduct {
		http.Error(w, "no such product", http.StatusNotFound)
		return
	}
	held, _ := wllock.HeldFrom(r.Context())
	err := s.shop.OrderFenced(r.Context(), servedProduct, r.RemoteAddr, held.Fence())
	switch {
	case err == nil:
		w.WriteHeader(http.StatusCreated)
	case errors.Is(err, sqlshop.ErrSoldOut):
		http.Error(w, "sold out", http.StatusGone)
	case r.Context().Err() == nil:
		s.log.ErrorContext(r.Context(), "order failed", "error", err)
		http.Error(w, "please try again", http.StatusServiceUnavailable)
	}
}

// serveUntil serves until ctx ends. Then it ends the page and its processes, the in-flight requests, and the store after them.
func (s *store) serveUntil(ctx context.Context, listener net.Listener) error {
	mux := s.handler()
	ctx, end := context.WithCancel(ctx)
	defer end()
	stage := newStage(ctx, s.set, s.stderr)
	stage.register(mux)
	server := &http.Server{
		Handler: protect(mux, s.set.Names...), ReadHeaderTimeout: headerTime,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelError),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	end()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
	defer cancel()
	err = errors.Join(err, server.Shutdown(grace), s.close(grace))
	<-stage.ended
	return err
}

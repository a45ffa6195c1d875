package main

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
	"github.com/wllock/wllock/example/flashsale/internal/face"
	"github.com/wllock/wllock/middleware/httpguard"
)

const (
	servedProduct = "1000"
	// graceTime is how long in-flight requests may take to end; below the 30 s after which most orchestrators kill.
	graceTime = 15 * time.Second
	// headerTime bounds clients that never finish their header.
	headerTime = 5 * time.Second
)

// store is the shop as a server.
type store struct {
	shop    fencedShop
	locker  *wllock.Locker
	metrics *prometheus.Registry
	meters  *metric.MeterProvider
	wait    time.Duration
	log     *slog.Logger
	set     settings // for the page
	stderr  io.Writer
	remove  func() // closes the shop, and removes its database if it is temporary
}

// serve runs the store until ctx ends.
func serve(ctx context.Context, s settings, stderr io.Writer) error {
	if err := migrateBackend(ctx, s.Backend); err != nil {
		return err
	}
	backend, err := openBackend(s.Backend)
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

func openStore(ctx context.Context, s settings, backend distributed.Backend, stderr io.Writer, opts ...wllock.Option) (st *store, err error) {
	st = &store{metrics: prometheus.NewRegistry(), wait: s.Wait, log: slog.New(slog.NewTextHandler(stderr, nil)), set: s, stderr: stderr}
	if st.shop, st.remove, err = openServedShop(ctx, s, stderr); err != nil {
		return nil, err
	}
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(st.metrics))
	if err != nil {
		st.remove()
		return nil, err
	}
	st.meters = metric.NewMeterProvider(metric.WithReader(exporter),
		metric.WithResource(resource.NewSchemaless(attribute.String("service.name", "flashsale"))))
	st.locker, err = wllock.New("flashsale", backend, append([]wllock.Option{
		wllock.WithThreshold(s.Threshold), wllock.WithLeaseTTL(leaseTTL),
		wllock.WithMeterProvider(st.meters), wllock.WithLogger(st.log),
	}, opts...)...)
	if err != nil {
		st.remove()
		return nil, errors.Join(err, st.meters.Shutdown(ctx))
	}
	return st, nil
}

// close runs after the requests: first the Locker, whose releases they have started, then what it reports to.
func (s *store) close(ctx context.Context) error {
	defer s.remove()
	return errors.Join(s.locker.Close(ctx), s.meters.Shutdown(ctx))
}

// handler serves the pages for operators beside the shop; a real service has a separate listener for them.
func (s *store) handler() *http.ServeMux {
	guard := httpguard.New(s.locker, "product", httpguard.PathValue("id"),
		httpguard.WithCallOptions(wllock.WithWait(s.wait)), httpguard.WithBodyBuffer(1<<10))
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
	case errors.Is(err, errSoldOut):
		http.Error(w, "sold out", http.StatusGone)
	case r.Context().Err() == nil:
		s.log.ErrorContext(r.Context(), "order failed", "error", err)
		http.Error(w, "please try again", http.StatusServiceUnavailable)
	}
}

// serveUntil serves until ctx ends. Then it ends the page and its processes, the in-flight requests, and the store after them.
func (s *store) serveUntil(ctx context.Context, listener net.Listener) error {
	mux, hungUp := s.handler(), make(chan struct{})
	onStage, endStage := context.WithCancel(context.WithoutCancel(ctx))
	stage := newStage(onStage, s.set, s.stderr)
	face.Register(mux, stage, hungUp)
	server := &http.Server{
		Handler: face.Protect(mux, onLoopback(listener)), ReadHeaderTimeout: headerTime,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelError),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	close(hungUp)
	endStage()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
	defer cancel()
	err = errors.Join(err, server.Shutdown(grace), s.close(grace))
	<-stage.ended
	return err
}

// onLoopback reports whether only this machine can connect.
func onLoopback(l net.Listener) bool {
	a, ok := l.Addr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// addressFlag is a listen address. Without a host it is this machine's own: who serves a page with buttons to everybody says so.
type addressFlag struct{ to *string }

func (f addressFlag) String() string {
	if f.to == nil {
		return ""
	}
	return *f.to
}

func (f addressFlag) Set(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" {
		return errors.New("allowed: host:port, or :port for this machine only, as in :8080")
	}
	*f.to = net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)
	return nil
}

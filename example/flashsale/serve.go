package main

import (
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
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/debug"
	"github.com/wllock/wllock/middleware/httpguard"
)

const (
	servedProduct = "1000"
	// graceTime is what requests that are under way have to end; below the 30 s after which most orchestrators kill.
	graceTime = 15 * time.Second
	// headerTime keeps clients that never finish their header from piling up.
	headerTime = 5 * time.Second
)

// serve is the shop as a server, until ctx ends.
func serve(ctx context.Context, s settings, stderr io.Writer) error {
	shop, _, remove, err := createShop(ctx)
	if err != nil {
		return err
	}
	defer remove()
	if err := shop.Stock(ctx, servedProduct, s.Stock); err != nil {
		return err
	}
	backend, err := openBackend(s.Backend)
	if err != nil {
		return err
	}
	defer func() { _ = backend.Close() }()
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return err
	}
	locker, err := wllock.New("flashsale", backend, wllock.WithThreshold(s.Threshold), wllock.WithLeaseTTL(leaseTTL),
		wllock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter))),
		wllock.WithLogger(slog.New(slog.NewTextHandler(stderr, nil))))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.Serve)
	if err != nil {
		return errors.Join(err, locker.Close(ctx))
	}
	fmt.Fprintf(stderr, "flashsale: POST http://%v/orders/%s, GET /metrics, /debug/wllock\n", listener.Addr(), servedProduct)
	return serveUntil(ctx, listener, handler(shop, locker, registry, s.Wait), locker)
}

// handler has what operators see beside the shop; a real one has a listener of its own for it.
func handler(shop *shop, locker *wllock.Locker, registry *prometheus.Registry, wait time.Duration) http.Handler {
	guard := httpguard.New(locker, "product", httpguard.PathValue("id"),
		httpguard.WithCallOptions(wllock.WithWait(wait)), httpguard.WithBodyBuffer(1<<10))
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", guard(http.HandlerFunc(shop.serveOrder)))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /debug/wllock", debug.Handler(locker))
	return mux
}

// serveOrder runs with the lock. When that was lost it writes nothing: the guard answers.
func (s *shop) serveOrder(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") != servedProduct {
		http.Error(w, "no such product", http.StatusNotFound)
		return
	}
	held, _ := wllock.HeldFrom(r.Context())
	err := s.OrderFenced(r.Context(), servedProduct, r.RemoteAddr, held.Fence())
	switch {
	case err == nil:
		w.WriteHeader(http.StatusCreated)
	case errors.Is(err, errSoldOut):
		http.Error(w, "sold out", http.StatusGone)
	case r.Context().Err() == nil:
		http.Error(w, "please try again", http.StatusServiceUnavailable)
	}
}

// serveUntil serves until ctx ends. Then first the requests end, then the Locker, whose releases they have begun.
func serveUntil(ctx context.Context, listener net.Listener, h http.Handler, locker *wllock.Locker) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: headerTime}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
	defer cancel()
	return errors.Join(err, server.Shutdown(grace), locker.Close(grace))
}

// addressFlag is where to listen.
type addressFlag struct{ to *string }

func (f addressFlag) String() string {
	if f.to == nil {
		return ""
	}
	return *f.to
}

func (f addressFlag) Set(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" {
		return errors.New("allowed is host:port, as in 127.0.0.1:8080 or :8080")
	}
	*f.to = text
	return nil
}

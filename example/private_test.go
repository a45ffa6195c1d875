package example

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/middleware/grpcguard"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// Everything private contains this mark: the key, a header, the body, and the backend's password.
const (
	mark    = "marked-as-private"
	key     = "key-" + mark
	token   = "Bearer " + mark
	body    = `{"card": "` + mark + `"}`
	backend = "redis://user:" + mark + "@127.0.0.1:1" // without a listener
)

// record is the output of a service: its log at the default level, its metrics and its answers.
type record struct {
	mu      sync.Mutex // guards b
	b       strings.Builder
	metrics *prometheus.Registry
	meters  *metric.MeterProvider
}

func newRecord(t *testing.T) *record {
	t.Helper()
	r := &record{metrics: prometheus.NewRegistry()}
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(r.metrics))
	require.NoError(t, err)
	r.meters = metric.NewMeterProvider(metric.WithReader(exporter))
	t.Cleanup(func() { _ = r.meters.Shutdown(context.Background()) })
	return r
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(b)
}

func (r *record) options(more ...wllock.Option) []wllock.Option {
	return append(more, wllock.WithLogger(slog.New(slog.NewTextHandler(r, nil))), wllock.WithMeterProvider(r.meters))
}

// check fails if anything private was output, or something expected was not.
func (r *record) check(t *testing.T, told ...string) {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r.metrics, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	fmt.Fprint(r, w.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, what := range told {
		assert.Contains(t, r.b.String(), what)
	}
	for line := range strings.Lines(r.b.String()) {
		assert.NotContains(t, line, mark)
	}
}

// door is a service behind a guard, with a client.
type door interface {
	// open runs work under the lock.
	open(t *testing.T, l *wllock.Locker, work func(ctx context.Context), opts ...wllock.CallOption)
	// knock sends one request and returns the whole answer as text.
	knock(t *testing.T) string
}

func TestNothingPrivateLeaves(t *testing.T) {
	for name, d := range map[string]func(*record) door{
		"HTTP": func(r *record) door { return &httpDoor{record: r} }, "gRPC": func(*record) door { return &grpcDoor{} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecord(t)
			refusals(t, r, d(r))
			losses(t, r, d(r))
			outages(t, r, d(r))
			r.check(t, "lock lost while held", "lock held for longer", "lock not released", "backend is away",
				`wllock_sheds_total{`, `wllock_outcome="wait_timeout"`, `wllock_outcome="held"`, `wllock_losses_total{`,
				`wllock_hold_duration_seconds_bucket{`, `wllock_outcome="unavailable"`)
		})
	}
}

func nothing(context.Context) {}

func refusals(t *testing.T, r *record, d door) {
	t.Helper()
	l := wllocktest.New(t, r.options()...)
	release := wllocktest.Hold(t, l, "product", key)
	defer release()
	for want, opts := range map[string][]wllock.CallOption{
		"429 8 queue-full LOCK_QUEUE_FULL": {wllock.WithCallThreshold(0)}, "409 10 held LOCK_HELD": {wllock.NoWait()},
		"429 8 wait-timeout LOCK_WAIT_TIMEOUT": {wllock.WithWait(time.Millisecond)},
	} {
		d.open(t, l, nothing, opts...)
		r.answered(t, d.knock(t), want)
	}
}

func losses(t *testing.T, r *record, d door) {
	t.Helper()
	l, faults := wllocktest.NewWithFaults(t, r.options(wllock.WithLeaseTTL(100*time.Millisecond))...)
	d.open(t, l, func(ctx context.Context) {
		faults.Lose("product", key)
		<-ctx.Done()
	})
	r.answered(t, d.knock(t), "503 10 lease-lost LOCK_LOST")
	d.open(t, l, func(ctx context.Context) {
		<-ctx.Done()
		faults.Partition()
	}, wllock.WithLockTimeMax(time.Millisecond), wllock.SyncRelease())
	r.answered(t, d.knock(t), "503 10 lease-lost LOCK_LOST")
	faults.Heal()
}

func outages(t *testing.T, r *record, d door) {
	t.Helper()
	away, err := redislock.Open(backend)
	require.NoError(t, err)
	defer func() { assert.NoError(t, away.Close()) }()
	l, err := wllock.New("test", away, r.options(wllock.WithLeaseTTL(time.Second))...)
	require.NoError(t, err)
	defer func() { assert.NoError(t, l.Close(context.Background())) }()
	d.open(t, l, nothing)
	for range 6 { // more than it takes to open the circuit breaker
		r.answered(t, d.knock(t), "503 14 backend-unavailable LOCK_BACKEND_UNAVAILABLE")
	}
}

// answered records an answer. want lists what it contains over HTTP and over gRPC: status, code, type, reason.
func (r *record) answered(t *testing.T, answer, want string) {
	t.Helper()
	fmt.Fprintln(r, answer)
	words := strings.Fields(want)
	if strings.HasPrefix(answer, "HTTP") {
		require.Contains(t, answer, " "+words[0]+" ")
		require.Contains(t, answer, "#"+words[2])
		return
	}
	require.Contains(t, answer, "code:"+words[1])
	require.Contains(t, answer, words[3])
}

type httpDoor struct {
	record *record
	url    string
}

func (d *httpDoor) open(t *testing.T, l *wllock.Locker, work func(context.Context), opts ...wllock.CallOption) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", httpguard.New(l, "product", httpguard.PathValue("id"), httpguard.WithBodyBuffer(1<<10),
		httpguard.WithCallOptions(opts...))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { work(r.Context()) })))
	s := httptest.NewUnstartedServer(mux)
	s.Config.ErrorLog = log.New(d.record, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	d.url = s.URL + "/orders/" + key
}

func (d *httpDoor) knock(t *testing.T) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", token)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return fmt.Sprintf("%s %s %v %s", resp.Proto, resp.Status, resp.Header, b)
}

type grpcDoor struct {
	pb.UnimplementedTestServiceServer
	work   func(context.Context)
	client pb.TestServiceClient
}

func (d *grpcDoor) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	d.work(ctx)
	return nil, errors.Join(status.Error(codes.OK, ""), ctx.Err())
}

func (d *grpcDoor) open(t *testing.T, l *wllock.Locker, work func(context.Context), opts ...wllock.CallOption) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer(grpc.UnaryInterceptor(
		grpcguard.UnaryServerInterceptor(l, "product", grpcguard.Metadata("id"), grpcguard.WithCallOptions(opts...))))
	pb.RegisterTestServiceServer(s, &grpcDoor{work: work})
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(); s.Stop(); <-served })
	d.client = pb.NewTestServiceClient(conn)
}

func (d *grpcDoor) knock(t *testing.T) string {
	t.Helper()
	var header, trailer metadata.MD
	_, err := d.client.UnaryCall(metadata.AppendToOutgoingContext(t.Context(), "id", key, "authorization", token),
		&pb.SimpleRequest{Payload: &pb.Payload{Body: []byte(body)}}, grpc.Header(&header), grpc.Trailer(&trailer))
	require.Error(t, err)
	return fmt.Sprintf("gRPC code:%d %v %v %v", status.Code(err), status.Convert(err).Proto(), header, trailer)
}

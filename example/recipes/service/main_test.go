package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/example/recipes"
	"github.com/wllock/wllock/example/recipes/service/shopclient"
	"github.com/wllock/wllock/example/recipes/service/shoppb"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/redistest"
)

// serviceVariable tells this program to be the service.
const serviceVariable = "RECIPES_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(serviceVariable) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(dbtest.Main(m))
}

// program is the service as a process.
type program struct {
	*exec.Cmd
	addr   map[string]string // of each of its listeners
	ended  chan error
	logged func() string
}

// start starts the service as a process, on real servers.
func start(t *testing.T, redis, database string) *program {
	t.Helper()
	p := &program{Cmd: exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0]), addr: map[string]string{}, ended: make(chan error, 1)}
	p.Env = append(os.Environ(), serviceVariable+"=1", "WLLOCK_SYSTEM_NAME=shop", "WLLOCK_BACKEND=redis://"+redis, "WLLOCK_SINGLE_WAIT_THRESHOLD=1",
		"WLLOCK_INSTANCE=shop-1", "DATABASE_URL="+database, "HTTP_ADDR=127.0.0.1:0", "GRPC_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0")
	stderr, err := p.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	lines := bufio.NewScanner(stderr)
	var mu sync.Mutex // guards log
	var log strings.Builder
	p.logged = func() string { mu.Lock(); defer mu.Unlock(); return log.String() }
	for len(p.addr) < 3 && lines.Scan() {
		log.WriteString(lines.Text() + "\n")
		fields := strings.Fields(lines.Text()) // ... INFO listening what=HTTP addr=127.0.0.1:1234
		if what, ok := strings.CutPrefix(fields[len(fields)-2], "what="); ok {
			p.addr[what] = strings.TrimPrefix(fields[len(fields)-1], "addr=")
		}
	}
	go func() {
		for lines.Scan() {
			mu.Lock()
			log.WriteString(lines.Text() + "\n")
			mu.Unlock()
		}
		p.ended <- p.Wait()
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // if it has not ended
		if t.Failed() {
			t.Log(p.logged())
		}
	})
	require.Len(t, p.addr, 3, "%v", p.logged())
	return p
}

// ask sends a request to a listener of the service.
func (p *program) ask(t *testing.T, method, listener, path, order string) (code int, header http.Header, body string) {
	return p.askAs(t, "alice", method, listener, path, order)
}

func (p *program) askAs(t *testing.T, customer, method, listener, path, order string) (code int, header http.Header, body string) {
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.addr[listener]+path, http.NoBody)
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", order)
	r.Header.Set(customerHeader, customer)
	resp, err := http.DefaultClient.Do(r)
	if !assert.NoError(t, err) {
		return 0, nil, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	assert.NoError(t, err)
	return resp.StatusCode, resp.Header, string(b)
}

func TestServiceServesRefusesAndEnds(t *testing.T) {
	redis, database := redistest.Start(t), dbtest.SharedPostgres(t)
	conn, err := pgx.Connect(t.Context(), database.URL())
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), recipes.Schema+`INSERT INTO stock (id, qty) VALUES ('1000', 6), ('3000', 1);`)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	backend, err := redislock.Open("redis://" + redis.Addr)
	require.NoError(t, err)
	other, err := wllock.New("shop", backend, wllock.WithOwnedBackend()) // another replica
	require.NoError(t, err)
	defer func() { assert.NoError(t, other.Close(context.WithoutCancel(t.Context()))) }()

	p := start(t, redis.Addr, database.URL())
	defer http.DefaultClient.CloseIdleConnections()
	p.serves(t)
	p.refuses(t, other)
	p.ends(t, other)
}

func (p *program) serves(t *testing.T) {
	for _, sold := range []struct {
		customer, order string
		left            int
	}{{"alice", "a", 5}, {"alice", "b", 4}, {"alice", "b", 4}, {"bob", "a", 3}} {
		code, _, body := p.askAs(t, sold.customer, http.MethodPost, "HTTP", "/orders/1000", sold.order)
		require.Equal(t, http.StatusOK, code, body)
		var answer struct{ Left int }
		require.NoError(t, json.Unmarshal([]byte(body), &answer))
		require.Equal(t, sold.left, answer.Left, sold)
	}
	for order, want := range map[string]int{"c": http.StatusNotFound, "": http.StatusBadRequest} {
		code, _, _ := p.ask(t, http.MethodPost, "HTTP", "/orders/2000", order)
		require.Equal(t, want, code)
	}
	code, _, _ := p.askAs(t, "", http.MethodPost, "HTTP", "/orders/1000", "a")
	require.Equal(t, http.StatusBadRequest, code, "no customer")
	code, _, _ = p.ask(t, http.MethodPost, "HTTP", "/orders/3000", "a")
	require.Equal(t, http.StatusUnprocessableEntity, code, "her order of another product")

	conn, err := shopclient.Dial(p.addr["GRPC"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	client := shoppb.NewShopClient(conn)
	for customer, want := range map[string]int64{"alice": 5, "bob": 3} { // the orders of above, over gRPC
		ctx := metadata.AppendToOutgoingContext(t.Context(), customerHeader, customer)
		response, err := client.Order(ctx, &shoppb.OrderRequest{ProductId: "1000", OrderId: "a"})
		require.NoError(t, err)
		require.Equal(t, want, response.GetLeft())
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), customerHeader, "alice")
	response, err := client.Order(ctx, &shoppb.OrderRequest{ProductId: "1000", OrderId: "d"})
	require.NoError(t, err)
	require.EqualValues(t, 2, response.GetLeft())
	for order, want := range map[string]codes.Code{"e": codes.NotFound, "": codes.InvalidArgument} {
		_, err = client.Order(ctx, &shoppb.OrderRequest{ProductId: "2000", OrderId: order})
		require.Equal(t, want, status.Code(err))
	}
	_, err = client.Order(ctx, &shoppb.OrderRequest{ProductId: "3000", OrderId: "a"})
	require.Equal(t, codes.AlreadyExists, status.Code(err))
	_, err = client.Order(t.Context(), &shoppb.OrderRequest{ProductId: "1000", OrderId: "a"})
	require.Equal(t, codes.InvalidArgument, status.Code(err), "no customer")

	for path, want := range map[string]string{
		"/healthz": "", "/readyz": "", "/debug/wllock": "shop-1", "/metrics": `wllock_hold_duration_seconds_count{`,
	} {
		code, _, body := p.ask(t, http.MethodGet, "ADMIN", path, "")
		require.Equal(t, http.StatusOK, code, path)
		require.Contains(t, body, want, path)
	}
}

// refuses: while another replica has the lock, one request waits at the backend, one behind it, and the others are refused at once.
func (p *program) refuses(t *testing.T, other *wllock.Locker) {
	err := other.Do(t.Context(), "product", "1000", func(context.Context) error {
		codes := make(chan int, 4)
		for range cap(codes) {
			go func() {
				code, header, _ := p.ask(t, http.MethodPost, "HTTP", "/orders/1000", "f")
				assert.Equal(t, "", strings.Trim(header.Get("Retry-After"), "0123456789"))
				codes <- code
			}()
		}
		for range cap(codes) { // the waiting ones give up after 2 s
			assert.Equal(t, http.StatusTooManyRequests, <-codes)
		}
		return nil
	})
	require.NoError(t, err)
	_, _, body := p.ask(t, http.MethodGet, "ADMIN", "/metrics", "")
	require.Regexp(t, `wllock_sheds_total\{.*\} [23]`, body)
}

// ends: a request under way is served, the process exits with 0, and the lock is free at once.
func (p *program) ends(t *testing.T, other *wllock.Locker) {
	held, err := other.Acquire(t.Context(), "product", "1000")
	require.NoError(t, err)
	answered := make(chan int, 1)
	go func() {
		code, _, _ := p.ask(t, http.MethodPost, "HTTP", "/orders/1000", "g")
		answered <- code
	}()
	redistest.Eventually(t, 10*time.Second, "a request that waits", func() bool {
		found, err := other.Inspect(t.Context(), "product", "1000")
		return assert.NoError(t, err) && len(found.Waiters) == 1
	})
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	redistest.Eventually(t, 10*time.Second, "not ready", func() bool {
		code, _, _ := p.ask(t, http.MethodGet, "ADMIN", "/readyz", "")
		return code == http.StatusServiceUnavailable
	})
	require.NoError(t, held.Release(t.Context()))
	require.Equal(t, http.StatusOK, <-answered)
	require.NoError(t, <-p.ended, "exit status 0")
	found, err := other.Inspect(t.Context(), "product", "1000")
	require.NoError(t, err)
	require.Empty(t, found.Holders, "free before its TTL")
}

package stage

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/example/flashsale/internal/sale"
)

// The whole program over a real listener, started with flags and stopped as by a signal.
func TestServe(t *testing.T) {
	base := strings.TrimSuffix(servePage(t, "-serve", "127.0.0.1:0", "-stock", "1", "-ttl", "30s", "-wait", "1m"), "/")
	ask := func(method, path string) (int, string) {
		resp := send(t, method, base+path, "")
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	for path, want := range map[string]int{"/orders/2000": http.StatusNotFound, "/orders/1000": http.StatusCreated} {
		got, _ := ask(http.MethodPost, path)
		assert.Equal(t, want, got, path)
	}
	got, _ := ask(http.MethodPost, "/orders/1000")
	assert.Equal(t, http.StatusGone, got, "there was one piece")
	_, metrics := ask(http.MethodGet, "/metrics")
	for _, name := range []string{"wllock_acquire_duration_seconds_bucket", "wllock_hold_duration_seconds_bucket", "wllock_waiter_count", "wllock_waiter_limit"} {
		assert.Contains(t, metrics, name)
	}
	assert.NotRegexp(t, `="[^"]*1000[^"]*"`, metrics, "no key in a label; a value may have these digits")
	_, page := ask(http.MethodGet, "/debug/wllock")
	assert.Contains(t, page, "0 waiting")

	failed, told := serve(t.Context(), "-serve", strings.TrimPrefix(base, "http://"))
	assert.Equal(t, sale.StatusFailed, failed)
	assert.Contains(t, told, "address already in use")
}

func TestServeNeedsItsBackend(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	status, stderr := serve(ctx, "-serve", "127.0.0.1:0", "-backend", "redis://:hunter2@127.0.0.1:1")
	assert.Equal(t, sale.StatusFailed, status)
	assert.Contains(t, stderr, "unavailable")
	assert.NotContains(t, stderr, "hunter2")
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "flashsale-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// When the signal comes, requests being served get their answer, and so do those that wait.
func TestServeEndsGracefully(t *testing.T) {
	const buyers = 20
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	store := openTestStore(t, sale.Settings{Stock: buyers, Threshold: buyers, Wait: time.Minute}, memlock.New())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- store.serveUntil(ctx, listener) }()

	quiet := store.busy(t)
	answers := make(chan int, buyers)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range buyers {
		go func() { answers <- post(t, client, "http://"+listener.Addr().String()) }()
	}
	require.Eventually(t, func() bool { return store.locker.Stats().Total.Waiting == buyers-1 }, patience, time.Millisecond)
	stop()
	time.Sleep(10 * time.Millisecond)
	quiet()
	for range buyers {
		assert.Equal(t, http.StatusCreated, <-answers)
	}
	assert.NoError(t, <-ended)
}

func post(t *testing.T, client *http.Client, base string) (status int) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/orders/"+servedProduct, http.NoBody)
	if !assert.NoError(t, err) {
		return 0
	}
	resp, err := client.Do(r)
	if !assert.NoError(t, err) {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The whole program over a real listener: started by its flags, stopped as by a signal.
func TestServe(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, []string{"-serve", "127.0.0.1:0", "-stock", "1"}, strings.NewReader(""), io.Discard, in)
		in.Close()
	}()
	said, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	base := regexp.MustCompile(`http://[^/]+`).FindString(said)

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(method, path string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, base+path, http.NoBody)
		require.NoError(t, err)
		resp, err := client.Do(r)
		require.NoError(t, err)
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
	assert.NotContains(t, metrics, "1000", "no key in a label")
	_, page := ask(http.MethodGet, "/debug/wllock")
	assert.Contains(t, page, "0 waiting")

	stop()
	assert.Equal(t, statusOK, <-status)
}

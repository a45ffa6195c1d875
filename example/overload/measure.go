package main

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/middleware/httpguard"
)

// measure runs server and clients with one threshold.
func measure(ctx context.Context, threshold int) (p point, err error) {
	locker, err := wllock.New("overload", memlock.New(), wllock.WithThreshold(threshold))
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, locker.Close(context.WithoutCancel(ctx))) }()
	var wasted atomic.Int64
	server := httptest.NewServer(guarded(locker, &wasted))
	defer server.Close()
	c := newClients(server.URL)
	defer c.transport.CloseIdleConnections()

	runtime.GC()
	stop := c.watchHeap()
	c.generate(ctx, &wasted)
	c.open.Wait()
	stop()
	p = c.point
	p.threshold = threshold
	if len(c.times) > 0 {
		slices.Sort(c.times)
		p.p99 = c.times[int(math.Ceil(.99*float64(len(c.times))))-1]
	}
	return p, ctx.Err()
}

// guarded takes its time even if the client has left, as a database does that has been asked.
func guarded(locker *wllock.Locker, wasted *atomic.Int64) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", httpguard.New(locker, "product", httpguard.PathValue("id"))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(hold)
			if r.Context().Err() != nil {
				wasted.Add(1)
			}
			w.WriteHeader(http.StatusCreated)
		})))
	return mux
}

// clients are an open loop: each comes at its time, however many are waiting already.
type clients struct {
	url       string
	transport *http.Transport
	open      sync.WaitGroup

	mu    sync.Mutex // guards what follows
	point point
	times []time.Duration
}

// maxIdle is the connections that are kept: enough for all that are answered at once.
const maxIdle = 1024

func newClients(url string) *clients {
	dialer := &net.Dialer{}
	return &clients{url: url + "/orders/1000", transport: &http.Transport{
		DialContext: dialer.DialContext, MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdle,
	}}
}

// generate sends the requests, and notes how much was done for nobody in the measured time.
func (c *clients) generate(ctx context.Context, wasted *atomic.Int64) {
	begin := time.Now()
	counting, before := false, int64(0)
	for sent := 0; ctx.Err() == nil; time.Sleep(time.Millisecond) {
		at := time.Since(begin)
		if at >= warmUp+measured {
			c.mu.Lock()
			c.point.wasted = int(wasted.Load() - before)
			c.mu.Unlock()
			return
		}
		if !counting && at >= warmUp {
			counting, before = true, wasted.Load()
		}
		for ; sent < int(at.Seconds()*float64(rate)); sent++ {
			c.open.Go(func() { c.order(ctx, counting) })
		}
	}
}

// order is one client, from its arrival to its answer or its leaving.
func (c *clients) order(ctx context.Context, counts bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	status := c.post(ctx)
	took := time.Since(began)
	if !counts {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case status == http.StatusCreated:
		c.point.good++
		c.times = append(c.times, took)
	case status == http.StatusTooManyRequests:
		c.point.refused++
	case status == 0 && ctx.Err() != nil:
		c.point.timedOut++
	default: // 5xx, and connections that broke
		c.point.failures++
	}
}

// post returns 0 if there was no answer.
func (c *clients) post(ctx context.Context) (status int) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, http.NoBody)
	if err != nil {
		return 0
	}
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// watchHeap keeps the peak: of server and clients, for they are one process.
func (c *clients) watchHeap() (stop func()) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			metrics.Read(sample)
			c.mu.Lock()
			c.point.heap = max(c.point.heap, sample[0].Value.Uint64())
			c.mu.Unlock()
			select {
			case <-end:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() { close(end); <-ended }
}

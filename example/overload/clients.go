package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// clients are an open loop: each arrives at its time, however many are waiting already.
type clients struct {
	load
	transport *http.Transport
	open      sync.WaitGroup

	mu    sync.Mutex // guards point
	point point
}

// maxIdle is the number of connections kept: enough for all requests answered at once.
const maxIdle = 1024

// bareEvery is the time between requests without a guard: too few to add load.
const bareEvery = 10 * time.Millisecond

func newClients(l load, dial dialer) *clients {
	return &clients{load: l, transport: &http.Transport{
		DialContext: dial, MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdle,
	}}
}

// generate lets clients arrive at random, independently of each other: the gaps are exponentially distributed, and the same
// in each run.
func (c *clients) generate(ctx context.Context) {
	gaps := rand.New(rand.NewPCG(1, 2))
	counted := c.warmUp
	ends := c.warmUp + c.measured
	begin, at, bare := time.Now(), time.Duration(0), time.Duration(0)
	for at < ends && ctx.Err() == nil {
		if d := min(at, bare) - time.Since(begin); d > 0 {
			c.pause(d)
		}
		for now := time.Since(begin); at <= now && at < ends; at += c.gap(gaps) {
			counts := at >= counted
			c.open.Go(func() { c.order(ctx, counts) })
		}
		for now := time.Since(begin); bare <= now; bare += bareEvery {
			counts := bare >= counted
			c.open.Go(func() { c.bare(ctx, counts) })
		}
	}
}

func (c *clients) gap(r *rand.Rand) time.Duration {
	return time.Duration(r.ExpFloat64() / c.rate() * float64(time.Second))
}

// order is one client, from its arrival to its answer or time-out.
func (c *clients) order(ctx context.Context, counts bool) {
	status, took, patient := c.post(ctx, "/orders/1000")
	if !counts {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.point
	switch {
	case status == http.StatusCreated:
		p.good++
		p.client = append(p.client, took)
	case status == http.StatusTooManyRequests:
		p.refused++
	case status >= http.StatusInternalServerError:
		p.failures++
	case status == 0 && !patient:
		p.timedOut++
	default:
		p.broken++
	}
}

// bare sends an empty request: its latency is that of the machine and net/http.
func (c *clients) bare(ctx context.Context, counts bool) {
	status, took, _ := c.post(ctx, "/bare")
	if !counts || status != http.StatusCreated {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.point.bare = append(c.point.bare, took)
}

// post returns status 0 without an answer, and whether the client timed out.
func (c *clients) post(ctx context.Context, path string) (status int, took time.Duration, patient bool) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	status = c.roundTrip(ctx, path)
	return status, time.Since(began), ctx.Err() == nil
}

func (c *clients) roundTrip(ctx context.Context, path string) (status int) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://shop"+path, http.NoBody)
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

// into copies the results of the clients.
func (c *clients) into(p *point) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.good, p.refused, p.timedOut, p.failures, p.broken = c.point.good, c.point.refused, c.point.timedOut, c.point.failures, c.point.broken
	p.client, p.bare = c.point.client, c.point.bare
}

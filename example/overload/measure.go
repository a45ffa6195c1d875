package main

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// point is the result of one trial: the requests that started in the measured time.
type point struct {
	trial
	// answers, as clients saw them: 201, 429, none in time, 5xx, anything else
	good, refused, timedOut, failures, broken int
	wasted                                    int // orders whose clients had left

	holds  times // of the handler, inside the guard
	server times // of accepted requests, around the guard
	client times // of the same, at the client
	bare   times // at the client, of requests to an empty handler without a guard
	memory memory
}

// measure runs server and clients of one trial.
func measure(ctx context.Context, l load, of trial, listener net.Listener, dial dialer) (p point, err error) {
	locker, err := wllock.New("overload", memlock.New(), wllock.WithThreshold(of.threshold))
	if err != nil {
		return p, errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, locker.Close(context.WithoutCancel(ctx))) }()
	s := &shop{load: l}
	server := &http.Server{Handler: s.handler(locker, of.batches), ReadHeaderTimeout: l.patience}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }() // until Close
	defer func() { err = errors.Join(err, server.Close()); <-served }()
	c := newClients(l, dial)
	defer c.transport.CloseIdleConnections()

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		begin := time.Now().Add(l.warmUp)
		sleepUntil(ctx, begin)
		s.counting.Store(true)
		p.memory = sampleMemory(ctx, begin.Add(l.measured))
		s.counting.Store(false)
	}()
	c.generate(ctx)
	c.open.Wait()
	<-ended
	p.trial = of
	c.into(&p)
	s.into(&p)
	return p, ctx.Err()
}

func sleepUntil(ctx context.Context, at time.Time) {
	select {
	case <-time.After(time.Until(at)):
	case <-ctx.Done():
	}
}

// busy returns the share of the time the lock was in use.
func (p *point) busy(l load) float64 {
	var sum time.Duration
	for _, d := range p.holds {
		sum += d
	}
	return sum.Seconds() / l.measured.Seconds()
}

// bound is how long an accepted request should take at most: the holder and all waiters, of which it is the last. 0: no
// bound.
func (p *point) bound() time.Duration {
	if p.threshold == wllock.Unlimited {
		return 0
	}
	return time.Duration(p.holdsInLine()+1) * p.holds.mean()
}

// holdsInLine is how many holds the waiters take when the line is full.
func (p *point) holdsInLine() int {
	if !p.batches {
		return p.threshold
	}
	return (p.threshold + wllock.DefaultMaxBatch - 1) / wllock.DefaultMaxBatch
}

// times are durations, sorted when they are read.
type times []time.Duration

func (t times) mean() time.Duration {
	var sum time.Duration
	for _, d := range t {
		sum += d
	}
	return sum / time.Duration(max(len(t), 1))
}

// quantile returns the smallest duration that this share of all does not exceed, or 0.
func (t times) quantile(share float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(t))[max(int(math.Ceil(share*float64(len(t))))-1, 0)]
}

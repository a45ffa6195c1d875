package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/parts"
)

// Backend is the distributed tier on Redis. It is safe for concurrent use. Make one per process and server, for all
// its Lockers.
type Backend struct {
	name     string                   // for String: no secrets
	starts   []string                 // what the keys of each system begin with, for the probe
	key      func(full string) string // the Redis key of a lock; nil: its full name
	s        *session
	cancel   context.CancelFunc // ends the session
	nodes    *nodes
	attempts *attempts
	sub      *subscription

	observers *parts.Observers
	echoed    atomic.Pointer[string] // the tag of the server that the last Echo asked

	probes   chan struct{} // capacity 1: the right to probe
	proven   atomic.Bool   // a probe has succeeded
	measured atomic.Int64  // when fastEnough measured the round trip last, in ns since 1970
	judged   atomic.Int64  // what it found, in ns
	doubted  atomic.Bool   // an Enter was not answered in its time: see fastEnough
}

const (
	// processLength is how many letters of 5 bits make a process's id: 60 bits, enough never to meet another.
	processLength = 12
	// closeGrace bounds how long Close waits for a server that does not answer. What is not released by then expires by
	// itself.
	closeGrace = 2 * time.Second
)

func newBackend(tr conn.Transport, name string, set settings) *Backend {
	ctx, cancel := context.WithCancel(context.Background())
	observers := new(parts.Observers)
	s := &session{tr: conn.Pipelined(conn.Observed(tr, observers)), ctx: ctx, log: set.log.With("backend", "redislock("+name+")")}
	s.coldTrips = time.Duration(tr.SetupTrips()) + 1
	observers.Observe(s.observe)
	s.process, s.gap = rand.Text()[:processLength], set.gap
	s.spaces.channels = conn.NewChannels()
	b := &Backend{
		name: name, starts: set.starts, key: set.key, s: s, cancel: cancel, observers: observers, probes: make(chan struct{}, 1), nodes: newNodes(s),
	}
	b.attempts = newAttempts(uint64(time.Now().UnixMicro())) // so that attempts grow even if an instance id is used again
	b.sub = newSubscription(s, b.nodes, b.attempts)
	return b
}

// String names the server, without credentials.
func (b *Backend) String() string { return "redislock(" + b.name + ")" }

// GoString is String, so that no way to print a Backend shows what its client knows.
func (b *Backend) GoString() string { return b.String() }

// Enter implements distributed.Backend. What a request without an answer may have left is released (rule R1).
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	req = b.keyed(req)
	prev, err := b.adopt(req)
	if err != nil {
		return nil, nil, err
	}
	a, err := b.register(ctx, req, prev.lastFence())
	if err != nil {
		prev.enterFailed()
		return nil, nil, err
	}
	defer b.attempts.calls.Done()
	c := a.wire.enter(prev.asPrev())
	sent, err := b.s.ask(ctx, c, req.TTL, a.window)
	if err != nil {
		prev.enterFailed() // first, because the server remembers only the latest attempt that has ended
		a.discard()
		if ctx.Err() == nil && !errors.Is(err, distributed.ErrUnreached) && !errors.Is(err, distributed.ErrRefused) {
			b.doubted.Store(true)
		}
		return nil, nil, err
	}
	r := readStanding(c.Reply, sent)
	if r.kind == outdated { // and it has done nothing
		prev.enterFailed()
	} else {
		prev.enterReplied(r.prevLost && !a.repeatedLate(c, sent))
	}
	return a.entered(ctx, r, sent)
}

// adopt returns the lease that an Enter releases first, no longer renewed; nil if there is none left to release.
func (b *Backend) adopt(req distributed.Request) (*lease, error) {
	if req.Prev == nil {
		return nil, nil
	}
	l, ok := distributed.As[*lease](req.Prev)
	if !ok || l.a.s != b.s || l.a.key != req.Key {
		return nil, errors.New("redislock: Prev is not a lease of this backend and key")
	}
	if !l.Finish() {
		return nil, nil
	}
	l.adopt()
	return l, nil
}

// maxTTL is the longest T: enough for a lock that stays taken for a year. A place that names more than twice as much gets no more: see LONGEST in
// queue.lua.
const maxTTL = 800 * 24 * time.Hour

func check(req distributed.Request) error {
	if err := checkKey(req.Key); err != nil {
		return err
	}
	if err := req.CheckLimit(); err != nil {
		return fmt.Errorf("redislock: %w", err)
	}
	if req.TTL < distributed.MinTTL || req.TTL > maxTTL || req.Instance == "" || req.Key == "" {
		return fmt.Errorf("redislock: a request needs a key, an instance and a TTL from %v to %v", distributed.MinTTL, maxTTL)
	}
	return nil
}

// register checks a request, makes sure that the server was probed, and adds the attempt. With a nil error,
// attempts.calls counts one more. after is a fence that the key has had.
func (b *Backend) register(ctx context.Context, req distributed.Request, after uint64) (*attempt, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := check(req); err != nil {
		return nil, err
	}
	b.sub.noteTTL(req.TTL)
	if !b.isProven(req.Key) {
		if err := b.prove(ctx, max(req.TTL*3/2, firstBudget), req.Key); err != nil {
			return nil, err
		}
	}
	if err := b.fastEnough(ctx, req.Key, req.TTL); err != nil {
		return nil, err
	}
	a := newAttempt(b.attempts, b.nodes.of(req.Key), req, after)
	if !b.attempts.add(a) {
		return nil, distributed.ErrClosed
	}
	return a, nil
}

// Close implements distributed.Backend. It waits for releases under way, at most 2 s (closeGrace) if the server is unreachable.
func (b *Backend) Close() error {
	all, first := b.attempts.close()
	if !first {
		return nil
	}
	for _, a := range all {
		a.close()
	}
	b.cancel() // no Enter asks again, so they all end
	b.attempts.calls.Wait()
	b.nodes.close(time.Now().Add(closeGrace))
	b.sub.close()
	return b.s.tr.Close()
}

package redislock

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/parts"
)

// Backend is the distributed tier on Redis. It is safe for concurrent use. Make one per process and server, for all
// its Lockers.
type Backend struct {
	name   string                   // for String: no secrets
	starts []string                 // what the keys of each system begin with, for the probe
	key    func(full string) string // the Redis key of a lock; nil: its full name
	client *driver.Backend[claim]   // what becomes of requests: see package driver
	s      *session
	cancel context.CancelFunc // ends the session
	nodes  *nodes
	sub    *subscription
	close  func() error           // once
	echoed atomic.Pointer[string] // the tag of the server that the last Echo asked

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
	b := &Backend{name: name, starts: set.starts, key: set.key, cancel: cancel, probes: make(chan struct{}, 1)}
	var d driver.Driver[claim] = half{b}
	if set.conn.Acks.Replicas > 0 {
		d = acking{half{b}}
	}
	b.client = driver.New(d, clientSettings)
	b.s = &session{tr: conn.Pipelined(conn.Observed(tr, &b.client.Observers)), ctx: ctx, log: set.log.With("backend", "redislock("+name+")")}
	b.s.acks = set.conn.Acks
	b.s.coldTrips = time.Duration(tr.SetupTrips()) + 1
	b.client.Observe(b.s.observe)
	b.s.process, b.s.gap = rand.Text()[:processLength], set.gap
	b.s.spaces.channels = conn.NewChannels()
	b.nodes, b.sub, b.close = newNodes(b), newSubscription(b), sync.OnceValue(b.closeAll)
	return b
}

// String names the server, without credentials.
func (b *Backend) String() string { return "redislock(" + b.name + ")" }

// GoString returns what String returns, so that no way of printing a Backend shows the settings of its client.
func (b *Backend) GoString() string { return b.String() }

// Enter implements distributed.Backend.
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	return b.client.Enter(ctx, b.keyed(req))
}

// maxTTL is the longest T: enough for a lock that stays taken for a year. A place that names more than twice as much gets no more: see LONGEST in
// queue.lua.
const maxTTL = 800 * 24 * time.Hour

func check(req distributed.Request) error {
	if err := checkKey(req.Key); err != nil {
		return err
	}
	return parts.Check("redislock", &req, maxTTL)
}

// Close implements distributed.Backend. It waits for releases under way, for at most 2 s (closeGrace) if the server is unreachable.
func (b *Backend) Close() error { return b.close() }

func (b *Backend) closeAll() error {
	_ = b.client.Close() // nil
	b.sub.close()
	return b.s.tr.Close()
}

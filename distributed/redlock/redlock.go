package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/identity"
	"github.com/wllock/wllock/internal/keyless"
)

// Backend is the distributed tier on independent Redis servers. It is safe for concurrent use. Make one per process, for all
// its Lockers.
type Backend struct {
	client *driver.Backend[claim] // what becomes of requests: see package driver
	lane   *driver.Lane[claim]
	bids   sync.Map      // *bid by token: all that ask, wait or hold, so that notices find them
	last   atomic.Uint64 // the number of the latest

	nodes   []*node // never changed
	quorum  int
	process string // in the tokens and the channel of this process
	fences  bool
	log     *slog.Logger

	ctx     context.Context // ends when Close has waited long enough
	cancel  context.CancelFunc
	shut    context.Context // ends when Close begins
	refuse  context.CancelFunc
	listens sync.WaitGroup // subscriptions, which end with shut
	once    sync.Once      // starts them

	pace   conn.Pace    // of subscriptions
	pauses atomic.Int32 // nodes that are paused
	rtt    atomic.Int64 // smoothed time until a majority answers, in ns
	splits atomic.Int64 // votes yielded, for tests

	least  time.Duration // of the longest TTL: WithLongestTTL; never changed
	spaces spaces

	began time.Time    // never changed
	clock atomic.Int64 // that of the servers' median when we began, in ns since 1970; 0: not known yet

	runsMu sync.Mutex
	runs   []string // guarded by runsMu; the process of each server, by index
	twin   error    // guarded by runsMu; a server is named twice
}

const (
	// maxTTL is the longest T: enough for a lock that stays taken for a year. No vote lasts longer, whatever a place names: LONGEST in
	// common.lua.
	maxTTL = 800 * 24 * time.Hour

	processLength = 12 // letters of 5 bits, behind the process's name: enough never to meet another
)

func newBackend(servers []*redis.Options, set settings) *Backend {
	b := &Backend{
		quorum: quorum(len(servers)), process: processOf(set.conn.ClientName, rand.Text()[:processLength]), fences: set.fences, log: set.log,
		runs: make([]string, len(servers)), began: time.Now(),
		least: set.longest, spaces: spaces{all: make(map[string]*space)},
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.shut, b.refuse = context.WithCancel(context.Background())
	b.client = driver.New(half{b}, clientSettings)
	b.lane = b.client.NewLane(b.ctx, nil)
	for i, o := range servers {
		n := &node{b: b, index: i, name: o.Addr, channels: conn.NewChannels(), chores: map[*ask]*time.Timer{}}
		n.tr = conn.Single(n.greet(o), set.conn)
		b.nodes = append(b.nodes, n)
	}
	return b
}

// String names the servers, without credentials.
func (b *Backend) String() string {
	names := make([]string, len(b.nodes))
	for i, n := range b.nodes {
		names[i] = n.name
	}
	return "redlock(" + strings.Join(names, ",") + ")"
}

// GoString returns what String returns, so that no way of printing a Backend shows the settings of its clients.
func (b *Backend) GoString() string { return b.String() }

func (b *Backend) roundTrip() time.Duration { return time.Duration(b.rtt.Load()) }

// Enter implements distributed.Backend. It rolls back what an unanswered request may have left (rule Q1).
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	return b.client.Enter(ctx, req)
}

// Close implements distributed.Backend. It waits for releases under way, for at most 2 s (closeGrace) if servers are unreachable.
func (b *Backend) Close() error { return b.client.Close() }

// nextID names a bid. Its number is the time in microseconds, so that numbers order the bids of all processes by age as well as clocks agree,
// and greater than those before.
func (b *Backend) nextID() identity.Attempt {
	for {
		last := b.last.Load()
		if number := max(last+1, uint64(time.Now().UnixMicro())); b.last.CompareAndSwap(last, number) {
			return identity.NewAttempt(number)
		}
	}
}

func (b *Backend) unavailable(doing string, err error) error {
	return distributed.Unavailable("redlock: "+doing, err)
}

// failures joins what the servers have said, each with its name.
func (b *Backend) failures(errs []error) error {
	e := &quorumError{n: len(b.nodes)}
	format, args := "%d of %d servers failed:", []any{0, e.n}
	for i, err := range errs {
		if err != nil {
			e.all = append(e.all, err)
			format, args = format+" %s: %w;", append(args, b.nodes[i].name, err)
		}
	}
	args[0] = len(e.all)
	e.error = keyless.Errorf(strings.TrimSuffix(format, ";"), args...)
	return e
}

// quorumError names the servers that failed. It Is ErrUnreached or ErrRefused only if so many are that no majority is left:
// other errors may hide votes.
type quorumError struct {
	error
	all []error
	n   int
}

// Keyless implements keyless.Error.
func (e *quorumError) Keyless() (text string, safe bool) { return keyless.Text(e.error) }

// Is implements the interface of errors.Is.
func (e *quorumError) Is(target error) bool {
	count := 0
	for _, err := range e.all {
		if errors.Is(err, target) || target == distributed.ErrRefused && conn.Answered(err) {
			count++
		}
	}
	return count > e.n-quorum(e.n)
}

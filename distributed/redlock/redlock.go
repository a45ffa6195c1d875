package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/deadline"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

// Backend is the distributed tier on independent Redis servers. It is safe for concurrent use. Make one per process, for all
// its Lockers.
type Backend struct {
	nodes     []*node // never changed
	quorum    int
	process   string // in the tokens and the channel of this process
	fences    bool
	log       *slog.Logger
	observers parts.Observers
	attempts  *attempts
	keeper    *keepalive.Keeper
	beats     *deadline.Set[*attempt] // heartbeats of places

	ctx     context.Context // ends when Close has waited long enough
	cancel  context.CancelFunc
	listens sync.WaitGroup // subscriptions, which end with listenCtx
	once    sync.Once      // starts them

	listenCtx context.Context
	deafen    context.CancelFunc

	pace   conn.Pace    // of subscriptions
	pauses atomic.Int32 // nodes that are paused
	rtt    atomic.Int64 // smoothed time until a majority answers, in ns
	splits atomic.Int64 // votes yielded, for tests
	ending atomic.Int64 // when Close gives up, in ns since 1970; 0: it was not called

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
	// closeGrace bounds how long Close waits for servers that do not answer. What is not released by then expires.
	closeGrace = 2 * time.Second
)

func newBackend(servers []*redis.Options, set settings) *Backend {
	b := &Backend{
		quorum: quorum(len(servers)), process: processOf(set.conn.ClientName, rand.Text()[:processLength]), fences: set.fences, log: set.log,
		attempts: newAttempts(), runs: make([]string, len(servers)), began: time.Now(),
		least: set.longest, spaces: spaces{all: make(map[string]*space)},
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.listenCtx, b.deafen = context.WithCancel(context.Background())
	b.keeper = keepalive.NewKeeper(b.renew)
	b.beats = deadline.New(b.heartbeat)
	for i, o := range servers {
		n := &node{b: b, index: i, name: o.Addr, channels: conn.NewChannels()}
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

// GoString is String, so that no way to print a Backend shows what its clients know.
func (b *Backend) GoString() string { return b.String() }

func (b *Backend) roundTrip() time.Duration { return time.Duration(b.rtt.Load()) }

// Enter implements distributed.Backend. What a request without an answer may have left is rolled back (rule Q1).
func (b *Backend) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	prev, err := b.adopt(req)
	if err != nil {
		return nil, nil, err
	}
	a, err := b.register(ctx, req)
	if err != nil {
		prev.enterFailed()
		return nil, nil, err
	}
	defer b.attempts.calls.Done()
	a.enter(prev)
	return a.await(ctx)
}

// adopt returns the lease that an Enter releases first, no longer renewed; nil if there is none left to release.
func (b *Backend) adopt(req distributed.Request) (*lease, error) {
	if req.Prev == nil {
		return nil, nil
	}
	l, ok := distributed.As[*lease](req.Prev)
	if !ok || l.a.b != b || l.a.key() != req.Key {
		return nil, errors.New("redlock: Prev is not a lease of this backend and key")
	}
	if !l.Finish() {
		return nil, nil
	}
	return l, nil
}

// register checks a request and adds its attempt. With a nil error, attempts.calls counts one more.
func (b *Backend) register(ctx context.Context, req distributed.Request) (*attempt, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkKey(req.Key); err != nil {
		return nil, err
	}
	if err := req.Unlimited(); err != nil {
		return nil, fmt.Errorf("redlock: %w", err)
	}
	if err := parts.Check("redlock", &req, maxTTL); err != nil {
		return nil, err
	}
	if err := b.twinned(); err != nil {
		return nil, b.unavailable("enter", err)
	}
	b.pace.Note(req.TTL)
	a := newAttempt(b, req)
	if !b.attempts.add(a) {
		return nil, distributed.ErrClosed
	}
	b.listen()
	return a, nil
}

func (b *Backend) unavailable(doing string, err error) error {
	return distributed.Unavailable("redlock: "+doing, err)
}

// Close implements distributed.Backend. It waits for releases under way, at most 2 s (closeGrace) if servers are unreachable.
func (b *Backend) Close() error {
	giveUp := time.Now().Add(closeGrace)
	all, first := b.attempts.close(func() { b.ending.Store(giveUp.UnixNano()) })
	if !first {
		return nil
	}
	for _, a := range all {
		a.close()
	}
	b.attempts.calls.Wait()
	b.beats.Close()
	b.keeper.Close()
	for time.Now().Before(giveUp) && !b.idle() {
		time.Sleep(closePoll)
	}
	b.cancel()
	for _, n := range b.nodes {
		n.close()
	}
	b.deafen()
	b.once.Do(func() {}) // never listened: it stays so
	b.listens.Wait()
	return nil
}

// closePoll is how often Close looks whether all is done.
const closePoll = 2 * time.Millisecond

// idle reports that a majority of the servers has nothing left to do: what the others have expires.
func (b *Backend) idle() bool {
	var busy uint64
	for i, n := range b.nodes {
		if !n.idle() {
			busy |= 1 << i
		}
	}
	return bits.OnesCount64(busy) == 0 || bits.OnesCount64(busy) <= len(b.nodes)-b.quorum && b.pauses.Load() > 0
}

func (b *Backend) closing() bool     { return b.ending.Load() != 0 }
func (b *Backend) giveUp() time.Time { return time.Unix(0, b.ending.Load()) }

// errors joins what the servers have said, each with its name.
func (b *Backend) failures(errs []error) error {
	var all []error
	for i, err := range errs {
		if err != nil {
			all = append(all, keyless.Errorf("%s: %w", b.nodes[i].name, err))
		}
	}
	return &quorumError{all, len(b.nodes)}
}

// quorumError names the servers that failed. It Is ErrUnreached or ErrRefused only if so many are that no majority is left:
// other errors may hide votes.
type quorumError struct {
	all []error
	n   int
}

// Error implements error.
func (e *quorumError) Error() string {
	return e.text(func(err error) string { return err.Error() })
}

func (e *quorumError) text(of func(error) string) string {
	texts := make([]string, len(e.all))
	for i, err := range e.all {
		texts[i] = of(err)
	}
	return fmt.Sprintf("%d of %d servers failed: %s", len(e.all), e.n, strings.Join(texts, "; "))
}

// Keyless implements keyless.Error.
func (e *quorumError) Keyless() (text string, safe bool) {
	safe = true
	text = e.text(func(err error) string {
		t, one := keyless.Text(err)
		safe = safe && one
		return t
	})
	return text, safe
}

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

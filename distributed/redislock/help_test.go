package redislock

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

const (
	// testTTL is the TTL of leases in tests about time: H is 100 ms, W 300 ms.
	testTTL = 600 * time.Millisecond
	// slack is what a busy machine may add to a bound.
	slack = 250 * time.Millisecond
	// patience is how long something may take that has no bound of its own.
	patience = 10 * time.Second
)

// open returns a backend on the address, closed with the test.
func open(t testing.TB, addr string, opts ...Option) *Backend {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	return with(t, client, opts...)
}

// openNew is open on a server of its own.
func openNew(t testing.TB, opts ...Option) (*redistest.Server, *Backend) {
	t.Helper()
	s := redistest.Start(t)
	return s, open(t, s.Addr, opts...)
}

// with returns a backend with the client, closed with the test.
func with(t testing.TB, client redis.UniversalClient, opts ...Option) *Backend {
	t.Helper()
	b, err := New(client, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// byURL returns the backend of a URL, closed with the test.
func byURL(t testing.TB, url string, opts ...Option) *Backend {
	t.Helper()
	b, err := Open(url, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func exclusive(*distributed.Request) {}

// within is a context of the test that ends after d.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// swapTransport puts another transport before the backend's own. Call it before the first use.
func swapTransport(b *Backend, wrap func(conn.Transport) conn.Transport) { b.s.tr = wrap(b.s.tr) }

// aroundCalls puts something before the backend's own transport, to which it passes calls on. Call it before the first use.
func aroundCalls(b *Backend, do func(ctx context.Context, next conn.Transport, calls []*conn.Call)) {
	swapTransport(b, func(next conn.Transport) conn.Transport { return around{next, do} })
}

type around struct {
	conn.Transport
	do func(ctx context.Context, next conn.Transport, calls []*conn.Call)
}

func (a around) Do(ctx context.Context, calls ...*conn.Call) { a.do(ctx, a.Transport, calls) }

// stub is a server that answers each call as the test says.
type stub struct {
	conn.Transport
	answer func(c *conn.Call) (string, error)
}

func (s stub) Do(_ context.Context, calls ...*conn.Call) {
	for _, c := range calls {
		c.Reply, c.Err = s.answer(c)
	}
}
func (stub) Node(context.Context, string) string { return "" }
func (stub) Slots() (callers, acked int)         { return 1, 1 }
func (stub) SetupTrips() int                     { return 0 }
func (stub) Close() error                        { return nil }

// openStub returns a backend that has probed a stub for these systems, and has not subscribed.
func openStub(t *testing.T, answer func(c *conn.Call) (string, error), systems ...string) *Backend {
	b := newBackend(stub{answer: answer}, "stub", settings{log: slog.New(slog.DiscardHandler)})
	b.proven.Store(true)
	for _, system := range systems {
		b.s.spaces.of(system, b.s.process).proven.Store(true)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

var instances atomic.Int64

// instance returns a name not used before.
func instance() string { return "i" + strconv.FormatInt(instances.Add(1), 10) }

// user is one instance of a backend.
type user struct {
	t    testing.TB
	b    *Backend
	name string
	ttl  time.Duration
}

func newUser(t testing.TB, b *Backend) user { return user{t: t, b: b, name: instance(), ttl: testTTL} }

func (u user) lasting(ttl time.Duration) user { u.ttl = ttl; return u }

func (u user) enter(ctx context.Context, key string, change ...func(*distributed.Request)) (distributed.Lease, distributed.Place, error) {
	req := distributed.Request{Key: key, Instance: u.name, TTL: u.ttl}
	for _, f := range change {
		f(&req)
	}
	return u.b.Enter(ctx, req)
}

// fails is the error of an enter.
func (u user) fails(ctx context.Context, key string, change ...func(*distributed.Request)) error {
	_, _, err := u.enter(ctx, key, change...)
	return err
}

// other is another instance.
func (u user) other() user { return newUser(u.t, u.b).lasting(u.ttl) }

func shared(r *distributed.Request) { r.Mode = distributed.Shared }
func noWait(r *distributed.Request) { r.NoWait = true }

// permit asks for one of n permits.
func permit(n int) func(*distributed.Request) {
	return func(r *distributed.Request) { r.Mode, r.Limit = distributed.Shared, n }
}

// lease is one of ours with the attempt behind it.
type lease struct {
	distributed.Lease
	a *attempt
}

// Unwrap makes it a lease that a backend knows again.
func (l *lease) Unwrap() distributed.Lease { return l.Lease }

func ours(l distributed.Lease) *lease { return &lease{l, attemptBehind(l)} }

// attemptBehind returns the attempt of a lease or a place.
func attemptBehind(x any) *attempt { return driver.AttemptOf[claim](x) }

func (u user) lease(key string, change ...func(*distributed.Request)) *lease {
	u.t.Helper()
	l, p, err := u.enter(u.t.Context(), key, change...)
	require.NoError(u.t, err)
	require.True(u.t, p == nil, "queued; want a lease") // printing one would race with who writes to it, as below
	return ours(l)
}

func (u user) place(key string, change ...func(*distributed.Request)) distributed.Place {
	u.t.Helper()
	l, p, err := u.enter(u.t.Context(), key, change...)
	require.NoError(u.t, err)
	require.True(u.t, l == nil, "got a lease; want a place")
	return p
}

// get enters and waits, again when a place is lost.
func (u user) get(key string, change ...func(*distributed.Request)) distributed.Lease {
	u.t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); {
		l, p, err := u.enter(u.t.Context(), key, change...)
		require.NoError(u.t, err)
		if l != nil {
			return l
		}
		select {
		case l, ok := <-p.Granted():
			if ok {
				return l
			}
		case <-time.After(patience):
		}
	}
	u.t.Fatalf("no lease within %v", patience)
	return nil
}

func granted(t testing.TB, p distributed.Place) distributed.Lease {
	t.Helper()
	select {
	case l, ok := <-p.Granted():
		require.True(t, ok, "the place was lost")
		return l
	case <-time.After(patience):
		t.Fatalf("nothing granted within %v", patience)
		return nil
	}
}

func release(t testing.TB, l distributed.Lease) {
	t.Helper()
	require.NoError(t, l.Release(t.Context()))
}

// passOn releases the lease, and what is granted to the places, one after the other.
func passOn(t testing.TB, l distributed.Lease, places ...distributed.Place) {
	t.Helper()
	release(t, l)
	for _, p := range places {
		release(t, granted(t, p))
	}
}

func fence(t testing.TB, l distributed.Lease) uint64 {
	t.Helper()
	n, ok := l.NextFence()
	require.True(t, ok, "no fence left")
	return n
}

// inTime asserts that something takes no longer than the bound, a machine's slack, and the time for which the machine stands still
// meanwhile. It logs that.
func inTime(t testing.TB, what string, bound time.Duration, do func()) {
	t.Helper()
	start := time.Now()
	do()
	inTimeSince(t, start, what, time.Since(start), bound)
}

// inTimeSince is inTime for something that took place at some time since start.
func inTimeSince(t testing.TB, start time.Time, what string, took, bound time.Duration) {
	t.Helper()
	stalled, _ := stalls.since(start)
	t.Logf("%s: %v (bound %v; the machine stood still for %v)", what, took.Round(time.Millisecond), bound, stalled.Round(time.Millisecond))
	testscope.InTime(t, took, bound+slack+stalled, what)
}

// commandStats returns how often each command has run, those inside scripts included.
func commandStats(s *redistest.Server) map[string]int {
	text, _ := s.Do("INFO", "commandstats").(string)
	stats := make(map[string]int)
	for line := range strings.Lines(text) {
		name, values, ok := strings.Cut(strings.TrimSpace(line), ":")
		var calls int
		if n, _ := fmt.Sscanf(values, "calls=%d", &calls); ok && n == 1 {
			stats[strings.TrimPrefix(name, "cmdstat_")] = calls
		}
	}
	return stats
}

// answered is the first word of the answer to a call.
func answered(c *conn.Call) string { return words(c.Reply).first() }

func (w words) first() string { return w.next() }

// queueLength is how many instances wait for the key.
func queueLength(s *redistest.Server, key string) int64 {
	n, _ := s.Do("ZCARD", keysOf(key, "")[2]).(int64)
	return n
}

func key(t testing.TB) string { return "test:" + strings.ReplaceAll(t.Name(), "/", ".") + ":1" }

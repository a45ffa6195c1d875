package redlock

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
)

const patience = testlocker.Patience

// servers are N independent Redis servers, each behind a proxy.
type servers struct {
	t       testing.TB
	all     []*redistest.Server
	proxies []*redistest.Proxy
	ahead   [5]atomic.Int64 // of their clocks, in ns, if they can be set
}

// start starts n servers whose votes count at once.
func start(t testing.TB, n int) *servers { return startFor(t, n, time.Minute) }

// startFor is start with the longest TTL that is going to be used: how long a server does not count that forgets its data.
func startFor(t testing.TB, n int, longest time.Duration) *servers {
	t.Helper()
	s := &servers{t: t}
	for range n {
		one := redistest.Start(t)
		s.all = append(s.all, one)
		s.proxies = append(s.proxies, redistest.NewProxy(t, one.Addr))
	}
	s.vouch(longest)
	return s
}

func (s *servers) vouch(longest time.Duration) {
	s.t.Helper()
	var marks []string
	args := []any{1}
	for _, system := range []string{"", "shop", "bank", "locktest"} {
		marks, args = append(marks, markOf(system)), append(args, longest.Milliseconds())
	}
	for _, one := range s.all { // every one, not just a majority
		require.NoError(s.t, one.Client().Eval(s.t.Context(), helloScript.Text, marks, args...).Err())
	}
}

// three starts three servers for a test that runs beside others, and opens a backend on them.
func three(t *testing.T, opts ...Option) (*servers, *Backend) {
	t.Helper()
	t.Parallel()
	s := start(t, 3)
	return s, s.open(opts...)
}

// do runs a command on every server.
func (s *servers) do(args ...any) {
	s.t.Helper()
	for _, one := range s.all {
		one.Do(args...)
	}
}

// setMark sets a moment of the mark of a server: 0 is when it was born, 3 when the period of its longest TTL has begun.
func setMark(t *testing.T, c redis.UniversalClient, field int, at time.Time) {
	t.Helper()
	var f []string
	require.Eventually(t, func() bool { f = strings.Fields(c.Get(t.Context(), markOf("")).Val()); return len(f) == 5 }, patience, time.Millisecond)
	f[field] = fmt.Sprint(at.UnixMilli())
	require.NoError(t, c.Set(t.Context(), markOf(""), strings.Join(f, " "), 0).Err())
}

// connect returns a client of each server, whose options are changed.
func (s *servers) connect(change func(i int, o *redis.Options)) (all []redis.UniversalClient) {
	for i, one := range s.all {
		all = append(all, one.Client(func(o *redis.Options) { change(i, o) }))
	}
	return all
}

// direct returns clients that do not go through the proxies.
func (s *servers) direct() []redis.UniversalClient { return s.connect(func(int, *redis.Options) {}) }

func (s *servers) clients() []redis.UniversalClient {
	return s.connect(func(i int, o *redis.Options) { o.Addr = s.proxies[i].Addr })
}

// open returns a backend on the servers, through the proxies.
func (s *servers) open(opts ...Option) *Backend {
	s.t.Helper()
	return with(s.t, s.clients(), opts...)
}

// with returns a backend with these clients, closed with the test.
func with(t testing.TB, clients []redis.UniversalClient, opts ...Option) *Backend {
	t.Helper()
	b, err := New(clients, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// fresh returns clients of three servers that were never used.
func fresh(t testing.TB, args ...string) (all []redis.UniversalClient) {
	for range 3 {
		all = append(all, redistest.Start(t, args...).Client())
	}
	return all
}

// linked is a backend that reaches only these of the servers, or all.
func linked(t testing.TB, s *servers, reaches ...int) *Backend {
	t.Helper()
	b, links := ownLinks(t, s)
	for i, p := range links {
		p.SetHalfOpen(len(reaches) > 0 && !slices.Contains(reaches, i))
	}
	return b
}

// ownLinks is a backend with links of its own.
func ownLinks(t testing.TB, s *servers) (*Backend, []*redistest.Proxy) {
	t.Helper()
	var links []*redistest.Proxy
	clients := s.connect(func(i int, o *redis.Options) {
		links = append(links, redistest.NewProxy(t, s.all[i].Addr))
		o.Addr = links[i].Addr
	})
	return with(t, clients, WithQuorumFences()), links
}

func request(key, instance string, change ...func(*distributed.Request)) distributed.Request {
	req := distributed.Request{Key: key, Instance: instance, TTL: time.Minute}
	for _, f := range change {
		f(&req)
	}
	return req
}

func noWait(r *distributed.Request) { r.NoWait = true }
func shared(r *distributed.Request) { r.Mode = distributed.Shared }

func lasting(ttl time.Duration) func(*distributed.Request) {
	return func(r *distributed.Request) { r.TTL = ttl }
}

// leaseOf enters, and waits for the lease.
func leaseOf(t *testing.T, b *Backend, req distributed.Request) distributed.Lease {
	t.Helper()
	l, p, err := b.Enter(t.Context(), req)
	require.NoError(t, err)
	if p != nil {
		return await(t, p)
	}
	require.NotNil(t, l)
	return l
}

// placeOf enters, and is queued.
func placeOf(t *testing.T, b *Backend, req distributed.Request) (distributed.Place, *bid) {
	t.Helper()
	_, p, err := b.Enter(t.Context(), req)
	require.NoError(t, err)
	require.NotNil(t, p)
	return p, bidOf(p)
}

// bidOf is the bid behind a lease or a place.
func bidOf(x any) *bid { return driver.AttemptOf[claim](x).Wire.bid.Load() }

// known is a bid that notices find.
func known(b *Backend, req distributed.Request) *bid {
	one := newBid(b, req)
	one.a = b.client.Orphan(b.client.NextNumber(), req)
	one.a.Wire.bid.Store(one)
	b.bids.Store(one.token, one)
	return one
}

func refusal(t *testing.T, b *Backend, req distributed.Request) error {
	t.Helper()
	l, p, err := b.Enter(t.Context(), req)
	require.True(t, l == nil && p == nil, "printing one would race with who writes to it")
	return err
}

// await waits for the lease of a place.
func await(t *testing.T, p distributed.Place) distributed.Lease {
	t.Helper()
	l := testlocker.Granted(t, p)
	require.NotNil(t, l, "the place was lost")
	return l
}

func release(t *testing.T, l distributed.Lease) {
	t.Helper()
	require.NoError(t, l.Release(t.Context()))
}

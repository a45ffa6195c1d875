package redlock

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
)

const patience = 20 * time.Second

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

// direct returns clients that do not go through the proxies.
func (s *servers) direct() []redis.UniversalClient {
	var all []redis.UniversalClient
	for _, one := range s.all {
		all = append(all, one.Client())
	}
	return all
}

func (s *servers) clients() []redis.UniversalClient {
	var all []redis.UniversalClient
	for i, one := range s.all {
		all = append(all, one.Client(func(o *redis.Options) { o.Addr = s.proxies[i].Addr }))
	}
	return all
}

// open returns a backend on the servers, through the proxies.
func (s *servers) open(opts ...Option) *Backend {
	s.t.Helper()
	b, err := New(s.clients(), opts...)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, b.Close()) })
	return b
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
	var clients []redis.UniversalClient
	var links []*redistest.Proxy
	for _, one := range s.all {
		p := redistest.NewProxy(t, one.Addr)
		links = append(links, p)
		clients = append(clients, one.Client(func(o *redis.Options) { o.Addr = p.Addr }))
	}
	b, err := New(clients, WithQuorumFences())
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b, links
}

func request(key, instance string) distributed.Request {
	return distributed.Request{Key: key, Instance: instance, TTL: time.Minute}
}

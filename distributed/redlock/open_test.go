package redlock

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

func TestWrongServersAreRefused(t *testing.T) {
	for url, want := range map[string]string{
		"redlock://a":                     "1 servers: want an odd number from 3",
		"redlock://a,b,c,d":               "4 servers: want an odd number from 3",
		"redlock://a,b,a:6379":            "a:6379 is named twice",
		"redlock://a,b,c/x":               "invalid database number",
		"redlock://a,b,c?x=1":             "one parameter: fences=quorum",
		"redis://a,b,c":                   `unknown scheme "redis"`,
		"redlock://u:s3cret@a,b":          "2 servers",
		"redlock://u:s3cret@a,b,c/secret": "invalid database",
	} {
		_, err := Open(url)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "s3cret")
	}
	_, err := New([]redis.UniversalClient{nil, nil, nil})
	require.ErrorContains(t, err, "want a *redis.Client")
	b, err := Open("redlocks://u:s3cret@a,b,c/2?fences=quorum")
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", b, b, b), "s3cret")
	require.NoError(t, b.Close())
}

// One server under two addresses would vote twice.
func TestOneServerUnderTwoAddressesIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	again := redistest.NewProxy(t, s.all[0].Addr)
	clients := s.clients()
	clients[2] = s.all[0].Client(func(o *redis.Options) { o.Addr = again.Addr })
	b := with(t, clients)
	var err error
	require.Eventually(t, func() bool {
		_, _, err = b.Enter(t.Context(), request("k", "a"))
		return err != nil
	}, patience, 10*time.Millisecond)
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "are one server")
}

// Servers that were never used count after the longest TTL; a caller that waits gets its lease then.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	clients := fresh(t)
	b := with(t, clients)
	began := time.Now()
	err := refusal(t, b, request("shop:k", "a", lasting(ttl), noWait))
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "count in")
	p, _ := placeOf(t, b, request("shop:k", "a", lasting(ttl)))
	l := await(t, p)
	require.GreaterOrEqual(t, time.Since(began), ttl-10*time.Millisecond)
	release(t, l)
	page, err := os.ReadFile("../../docs/redlock.md")
	require.NoError(t, err)
	_, key, _ := strings.Cut(string(page), "`GET ")
	key, format, _ := strings.Cut(key, "`") // and an operator learns the TTL as the page says
	require.Contains(t, format, "`<born> <longest> <before> <since> <run_id>`")
	told := 0
	for _, c := range clients {
		fields := strings.Fields(c.Get(t.Context(), key).Val())
		require.Len(t, fields, 5)
		if slices.Contains(fields[1:3], fmt.Sprint(ttl.Milliseconds())) {
			told++
		}
	}
	require.GreaterOrEqual(t, told, 2) // the lease needed a majority: the third may be late
}

// An instance with a short TTL that has been told of a longer one waits for that.
func TestLongestTTL(t *testing.T) {
	t.Parallel()
	const longest = 1500 * time.Millisecond
	clients := fresh(t)
	b := with(t, clients, WithLongestTTL(longest))
	began := time.Now()
	p, _ := placeOf(t, b, request("k", "a", lasting(time.Second/2)))
	l := await(t, p)
	require.GreaterOrEqual(t, time.Since(began), longest-10*time.Millisecond)
	l.Abandon()
	_, err := New(clients, WithLongestTTL(0))
	require.ErrorContains(t, err, "want a positive TTL")
}

// Without notices heartbeats find the votes.
func TestLostNotices(t *testing.T) {
	t.Parallel()
	s := startFor(t, 5, time.Second)
	a, b := s.open(), s.open()
	for _, p := range s.proxies {
		p.SetSilent(true)
	}
	l := leaseOf(t, a, request("k", "a", lasting(time.Second)))
	p, _ := placeOf(t, b, request("k", "b", lasting(time.Second)))
	release(t, l)
	release(t, await(t, p))
}

// TestANewSubscriptionAsksWhetherOthersWait: the notice for a lease may have been sent before.
func TestANewSubscriptionAsksWhetherOthersWait(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Minute // the claim would come after 100 s
	s := startFor(t, 3, ttl)
	b := s.open()
	l := leaseOf(t, b, request("k", "a", lasting(ttl)))
	granted := l.Until()
	b.nodes[0].OnSubscribe(prefixOf("") + b.process)
	require.Eventually(t, func() bool { return l.Until().After(granted) }, patience, time.Millisecond)
	release(t, l)
}

// Split votes are rare, and resolved: with eight instances on one key most grants take one question.
func TestHotKey(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	s := startFor(t, 5, time.Minute)
	var all []*Backend
	turns := testlocker.HotKey(t, func() distributed.Backend {
		b := with(t, s.direct(), WithQuorumFences())
		all = append(all, b)
		return b
	})
	var splits int64
	for _, b := range all {
		splits += b.splits.Load()
	}
	t.Logf("%d turns, %d votes yielded", turns, splits)
	require.Greater(t, turns, 10*splits)
}

package redislock

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
)

func inspect(t *testing.T, b *Backend, key string) distributed.Inspection {
	t.Helper()
	found, err := b.Inspect(t.Context(), key)
	require.NoError(t, err)
	return found
}

// When a lock was acquired, and since when others wait, is told by fences and tickets: nothing is stored for it.
func TestInspectTellsSinceWhen(t *testing.T) {
	t.Parallel()
	u := newUser(t, open(t, redistest.Start(t).Addr)).lasting(60e9)
	for _, mode := range []func(*distributed.Request){exclusive, shared} {
		start := time.Now().Add(-time.Millisecond)
		l := u.lease(key(t), mode)
		p := u.other().place(key(t))
		found, end := inspect(t, u.b, key(t)), time.Now().Add(time.Millisecond)
		require.WithinRange(t, found.Since, start, end)
		require.WithinRange(t, found.Waiters[0].Since, start, end)
		passOn(t, l, p)
	}
}

// What older versions have written is understood: no host in the instance, no T in the value, tickets that count from one.
func TestInspectReadsOlderVersions(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	u := newUser(t, b).lasting(60e9)
	old := u.other()
	for _, value := range []string{
		"wllock:x:ABCDEFGHIJKL:1700000000000001:MNOPQRSTUVWXYZ23:5000:1700000000000000000",
		"wllock:x:ABCDEFGHIJKL:1700000000000001:MNOPQRSTUVWXYZ23:1700000000000000000",
	} {
		s.Do("SET", key(t), value, "PX", "60000")
		err := u.fails(t.Context(), key(t), noWait)
		named, ok := err.(*distributed.HeldError) //nolint:errorlint // that is what it returns
		require.True(t, ok, "%v", err)
		require.Equal(t, "MNOPQRSTUVWXYZ23", named.Holder)
		p := old.place(key(t))
		queue := keysOf(key(t), "")[queueKey]
		s.Do("ZADD", queue, "1", old.name) // as they numbered
		q := u.place(key(t))
		found := inspect(t, u.b, key(t))
		require.Equal(t, "MNOPQRSTUVWXYZ23", found.Holder())
		require.Equal(t, time.Unix(1_700_000_000, 0), found.Since)
		require.Equal(t, []string{old.name, u.name}, []string{found.Waiters[0].Instance, found.Waiters[1].Instance})
		require.Zero(t, found.Waiters[0].Since)
		require.WithinDuration(t, time.Now(), found.Waiters[1].Since, time.Minute)
		record, err := u.b.Break(t.Context(), found, "test", "old")
		require.NoError(t, err)
		require.Greater(t, record.Fence, uint64(1_700_000_000_000_000_000))
		release(t, granted(t, p))
		release(t, granted(t, q))
	}
}

func TestInspectShowsPermits(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	waiter, reader := newUser(t, b), newUser(t, b)
	l, l2 := newUser(t, b).lease(key(t), permit(2)), newUser(t, b).lease(key(t), permit(2))
	p, q := waiter.place(key(t), permit(2)), reader.place(key(t), shared)
	s.Do("ZADD", keysOf(key(t), "")[readersKey], time.Now().Add(-time.Second).UnixMilli(), "dead:1:dead") // it has expired, and is not pruned yet
	found := inspect(t, b, key(t))
	require.Len(t, found.Holders, 2)
	require.Zero(t, found.MoreHolders, "one that has expired is none")
	require.Equal(t, distributed.Shared, found.Mode)
	for i := range found.Waiters {
		found.Waiters[i].Since = time.Time{}
	}
	require.Equal(t, []distributed.Waiter{
		{Instance: waiter.name, Mode: distributed.Shared, Limit: 2}, {Instance: reader.name, Mode: distributed.Shared},
	}, found.Waiters)
	passOn(t, l, p, q)
	release(t, l2)
}

// A foreigner's lock is shown, and is not ours to end. What never expires is no lock.
func TestInspectLeavesForeignersAlone(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	s.Do("SET", "order:product:1", "unique", "PX", "60000")
	s.Do("SET", "order:product:2", strings.Repeat("x", 1<<20))
	s.Do("HSET", "order:product:3", "a", "b")
	found := inspect(t, b, "order:product:1")
	require.True(t, found.Foreign)
	require.True(t, found.Held())
	require.Empty(t, found.Holder())
	require.InDelta(t, 60, found.Holders[0].Left.Seconds(), 30)
	_, err := b.Break(t.Context(), found, "test", "stuck")
	require.ErrorContains(t, err, "not wllock")
	require.Equal(t, "unique", s.Do("GET", "order:product:1"))
	page, next, err := b.List(t.Context(), "order:", "", 10)
	require.NoError(t, err)
	require.Empty(t, next)
	require.Len(t, page, 1)
	require.Equal(t, "order:product:1", page[0].Key)
	_, _, err = b.List(t.Context(), "order:", "nonsense", 10)
	require.ErrorContains(t, err, "cursor")
}

// A prefix is no pattern, and helper keys are no locks.
func TestListTakesItsPrefixLiterally(t *testing.T) {
	t.Parallel()
	u := newUser(t, open(t, redistest.Start(t).Addr)).lasting(time.Minute)
	want := []string{`a*:n:1`, "a[b]:n:1", `a\*:n:1`, "ab:n:1"}
	for _, k := range want {
		defer release(t, u.lease(k))
	}
	p := u.other().place("ab:n:1")
	list := func(prefix string) (keys []string) {
		for cursor := ""; ; {
			page, next, err := u.b.List(t.Context(), prefix, cursor, 10)
			require.NoError(t, err)
			for _, found := range page {
				keys = append(keys, found.Key)
			}
			if cursor = next; cursor == "" {
				return keys
			}
		}
	}
	for _, k := range want {
		require.Equal(t, []string{k}, list(strings.TrimSuffix(k, "n:1")))
	}
	require.ElementsMatch(t, want, list(""))
	require.NoError(t, p.Leave(t.Context()))
}

// Also with the state lost, and the clock set back since the grant, fences after a break are above those of the broken lease; and the gap for
// foreigners is kept.
func TestBreakMovesTheFence(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, opts := range map[string][]Option{"plain": nil, "gap": {WithInteropGap(50 * time.Millisecond)}} {
		t.Run(name, func(t *testing.T) {
			u := newUser(t, open(t, s.Addr, opts...)).lasting(60e9)
			l := u.lease(key(t))
			s.Do("DEL", keysOf(key(t), "")[1])
			value, ahead := s.Do("GET", key(t)).(string), l.a.Fences.First+uint64(time.Minute) // by a clock that was ahead
			s.Do("SET", key(t), value[:len(value)-fenceDigits]+strconv.FormatUint(ahead, 10), "KEEPTTL")
			p := u.other().place(key(t))
			record, err := u.b.Break(t.Context(), inspect(t, u.b, key(t)), "test", "stuck")
			require.NoError(t, err)
			require.GreaterOrEqual(t, record.Fence, ahead+firstBlock)
			next := granted(t, p)
			require.Greater(t, fence(t, next), record.Fence)
			<-l.Lost()
			release(t, next)
		})
	}
}

// A message that a lease was ended is not believed: the holder asks.
func TestAFalseNoticeEndsNoLease(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	l := newUser(t, b).lasting(60e9).lease(key(t))
	until := l.Until()
	s.Do("PUBLISH", channelOf("test", b.s.process), fmt.Sprint("l ", l.a.Wire.id))
	require.Eventually(t, func() bool { return l.Until().After(until) }, patience, time.Millisecond)
	require.True(t, l.Healthy())
	release(t, l)
}

// Connections are named after the process, by HELLO, unless the client names them.
func TestConnectionsHaveTheProcessesName(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	release(t, newUser(t, open(t, s.Addr, WithInstance("web-1"))).lease(key(t)))
	require.Regexp(t, `(?m) name=web-1-[a-z2-7]{10} .* cmd=(evalsha|subscribe)`, s.Do("CLIENT", "LIST"))
	require.Zero(t, commandStats(s)["client|setname"])

	client := redis.NewClient(&redis.Options{Addr: s.Addr, ClientName: "mine"})
	defer client.Close()
	release(t, newUser(t, with(t, client)).lease(key(t)))
	named := regexp.MustCompile(`(?m) name=mine .* sub=1 `)
	require.Eventually(t, func() bool { return named.MatchString(s.Do("CLIENT", "LIST").(string)) }, patience, time.Millisecond)
}

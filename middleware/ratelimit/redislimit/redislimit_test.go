package redislimit_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/middleware/ratelimit"
	"github.com/wllock/wllock/middleware/ratelimit/redislimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var five = ratelimit.Policy{Name: "caller", Quota: 5, Window: time.Hour}

// open returns a Limiter that is closed with the test.
func open(t testing.TB, client redis.UniversalClient, opts ...redislimit.Option) *redislimit.Limiter {
	t.Helper()
	l := redislimit.New(client, opts...)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func take(t testing.TB, l ratelimit.Limiter, id, request string) ratelimit.Result {
	t.Helper()
	r, err := l.Take(t.Context(), five, id, request)
	require.NoError(t, err)
	return r
}

// together sends requests of an identity at once, and returns how many are admitted.
func together(t testing.TB, l *redislimit.Limiter, n int, id, request string) int {
	var allowed atomic.Int32
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			r, err := l.Take(t.Context(), five, id, request)
			assert.NoError(t, err)
			if r.Allowed {
				allowed.Add(1)
			}
		})
	}
	wg.Wait()
	return int(allowed.Load())
}

// openCluster returns a cluster, a client with the rights of the documented line on each node, and a limiter with that.
func openCluster(t testing.TB) (*redistest.Cluster, redis.UniversalClient, *redislimit.Limiter) {
	c := redistest.StartCluster(t)
	var o redis.Options
	for _, n := range c.Nodes {
		n.AddUser(t, "middleware.md", "shop", "+cluster|slots")(&o)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Username: o.Username, Password: o.Password})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return c, client, open(t, client, redislimit.WithPrefix("wllock:shop:limit:"))
}

// The subtests share a server, each with its own identities.
func TestLimiter(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	l, other := open(t, client), open(t, server.Client())

	t.Run("counts over all processes", func(t *testing.T) {
		for left := 4; left >= 0; left-- {
			l, other = other, l
			r := take(t, l, "count", "")
			require.True(t, r.Allowed)
			require.Equal(t, left, r.Remaining)
			require.Zero(t, r.RetryAfter)
			require.InDelta(t, time.Duration(5-left)*12*time.Minute, r.ResetAfter, float64(time.Second))
		}
		r := take(t, l, "count", "")
		require.False(t, r.Allowed)
		require.InDelta(t, 12*time.Minute, r.RetryAfter, float64(time.Second))
		require.True(t, take(t, l, "another", "").Allowed)
	})

	t.Run("a retry is charged once", func(t *testing.T) {
		require.Equal(t, 4, take(t, l, "retry", "r1").Remaining)
		require.Equal(t, 4, take(t, l, "retry", "r1").Remaining, "its retry")
		require.Equal(t, 3, take(t, l, "retry", "r1").Remaining, "a third time")
		for range 3 {
			require.True(t, take(t, l, "retry", "").Allowed)
		}
		require.True(t, take(t, l, "retry", "r1").Allowed, "the retry of the third, though the quota is used up")
		require.False(t, take(t, l, "retry", "r2").Allowed)
		require.False(t, take(t, l, "retry", "r2").Allowed, "a refused request has paid for no retry")
	})

	t.Run("if two arrive together, one is charged", func(t *testing.T) {
		require.Equal(t, 2, together(t, l, 2, "twice", "r"))
		require.Equal(t, 3, take(t, l, "twice", "").Remaining)
	})

	t.Run("every key expires", func(t *testing.T) {
		take(t, l, "expires", "r")
		keys, err := client.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		require.Contains(t, strings.Join(keys, " "), "wllock:limit:{expires}:r")
		for _, key := range keys {
			ttl, err := client.TTL(t.Context(), key).Result()
			require.NoError(t, err)
			require.Positive(t, ttl, key)
			require.LessOrEqual(t, ttl, time.Hour, key)
		}
	})

	t.Run("in the middleware", func(t *testing.T) {
		charges := []ratelimit.Charge{{Policy: five, Identity: "a very secret token"}}
		for range 5 {
			v, err := ratelimit.Take(t.Context(), l, charges, "")
			require.NoError(t, err)
			refused, _ := v.Refused()
			require.Nil(t, refused)
		}
		v, err := ratelimit.Take(t.Context(), l, charges, "")
		require.NoError(t, err)
		refused, after := v.Refused()
		require.Equal(t, &five, refused)
		require.Positive(t, after)
		keys, err := client.Keys(t.Context(), "*secret*").Result()
		require.NoError(t, err)
		require.Empty(t, keys)
	})
}

// Two services whose policies have the same name share no quota if they have prefixes of their own, and a user that may
// use one prefix only is enough.
func TestPrefix(t *testing.T) {
	server := redistest.Start(t)
	user := server.AddUser(t, "middleware.md", "mail")
	shop := open(t, server.Client(server.AddUser(t, "middleware.md", "shop")), redislimit.WithPrefix("wllock:shop:limit:"))
	mail := open(t, server.Client(user), redislimit.WithPrefix("wllock:mail:limit:"))
	for range five.Quota {
		require.True(t, take(t, shop, "a", "").Allowed)
	}
	require.False(t, take(t, shop, "a", "").Allowed)
	require.Equal(t, 4, take(t, mail, "a", "").Remaining)
	require.Equal(t, 3, take(t, mail, "a", "r").Remaining)
	require.Equal(t, 3, take(t, mail, "a", "r").Remaining)
	keys, err := server.Client().Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"wllock:shop:limit:{a}", "wllock:mail:limit:{a}"}, keys, "the note went with the retry")
	require.Empty(t, server.Do("ACL", "LOG"), "nothing was refused")
	wrong := open(t, server.Client(user), redislimit.WithPrefix("wllock:shop:limit:"))
	_, err = wrong.Take(t.Context(), five, "a", "")
	require.ErrorContains(t, err, "NOPERM", "another system's quota")
}

func TestWrongArguments(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	for prefix, want := range map[string]string{
		"":                       "redislimit: WithPrefix: the prefix has 0 bytes, want 1 to 128",
		strings.Repeat("a", 129): "redislimit: WithPrefix: the prefix has 129 bytes, want 1 to 128",
		"shop {a}":               `redislimit: WithPrefix("shop {a}"): want printable ASCII without spaces and braces, not ' ' at byte 4`,
		"{shop}:":                `redislimit: WithPrefix("{shop}:"): want printable ASCII without spaces and braces, not '{' at byte 0`,
		"shop\n":                 `redislimit: WithPrefix("shop\n"): want printable ASCII without spaces and braces, not '\n' at byte 4`,
		"läden:":                 `redislimit: WithPrefix("läden:"): want printable ASCII without spaces and braces, not 'Ã' at byte 1`,
	} {
		require.PanicsWithValue(t, want, func() { redislimit.WithPrefix(prefix) })
	}
	for want, mistake := range map[string]func(){
		"redislimit: New(nil): want a client":                 func() { redislimit.New(nil) },
		"redislimit: New: an option is nil":                   func() { redislimit.New(client, nil) },
		"redislimit: WithLogger(nil): want a logger":          func() { redislimit.WithLogger(nil) },
		"redislimit: WithMeterProvider(nil): want a provider": func() { redislimit.WithMeterProvider(nil) },
	} {
		require.PanicsWithValue(t, want, mistake)
	}
	l := redislimit.New(client, redislimit.WithPrefix(strings.Repeat("~", 128)))
	require.NoError(t, l.Close())
}

// No request passes on the note of a request that was not charged.
func TestNoRequestPassesUnpaid(t *testing.T) {
	l := open(t, redistest.Start(t).Client())
	t.Run("pairs", func(t *testing.T) {
		for range five.Quota {
			require.True(t, take(t, l, "pairs", "").Allowed)
		}
		for n := range 300 {
			require.Zero(t, together(t, l, 2, "pairs", strconv.Itoa(n)), "the quota is used up, and these are unpaid")
		}
	})
	t.Run("one id gives twice the quota at most", func(t *testing.T) {
		allowed := 0
		for range 100 {
			allowed += together(t, l, 4, "one", "the same")
		}
		require.Equal(t, 2*five.Quota, allowed)
	})
}

// A client that disconnects is still charged, once, and leaves no unpaid note behind, whenever it disconnects.
func TestDisconnectedClientIsCharged(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	l := open(t, server.Client(func(o *redis.Options) { o.Addr = proxy.Addr }))
	take(t, l, "another", "r")
	proxy.SetDelay(time.Millisecond)
	ids := 2 * five.Quota
	for n := range ids { // from before it is sent until after its answer
		ctx, cancel := context.WithCancel(t.Context())
		stop := time.AfterFunc(time.Duration(n)*time.Millisecond/2, cancel)
		if n == 0 {
			cancel()
		}
		r, err := l.Take(ctx, five, "gone", strconv.Itoa(n))
		stop.Stop()
		cancel()
		require.NoError(t, err)
		require.Equal(t, n < five.Quota, r.Allowed)
	}
	for n := range ids {
		require.Equal(t, n < five.Quota, take(t, l, "gone", strconv.Itoa(n)).Allowed, "only the retry of a charged request passes")
	}
}

// All keys of one charge are on one node.
func TestCluster(t *testing.T) {
	testscope.Long(t, "starts a cluster")
	cluster := redistest.StartCluster(t)
	client := cluster.Client()
	l := open(t, client)
	for n := range 20 {
		id := strconv.Itoa(n)
		require.Equal(t, 4, take(t, l, id, "r").Remaining)
		require.Equal(t, 4, take(t, l, id, "r").Remaining)
		require.Equal(t, 3, take(t, l, id, "").Remaining)
	}

	for _, node := range cluster.Nodes { // one that hangs is not taken for dead
		node.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
		node.Do("CONFIG", "SET", "cluster-node-timeout", "60000")
	}
	var there, others []string
	for n := range 200 {
		id := "hangs " + strconv.Itoa(n)
		slot, err := client.ClusterKeySlot(t.Context(), "{"+id+"}").Result()
		require.NoError(t, err)
		if slot > 10922 {
			there = append(there, id)
		} else {
			others = append(others, id)
		}
	}
	cluster.Nodes[2].Pause()
	defer cluster.Nodes[2].Resume()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, id := range there {
		wg.Go(func() {
			_, err := l.Take(context.Background(), five, id, "")
			assert.Error(t, err)
		})
	}
	for _, id := range others {
		began := time.Now()
		require.Equal(t, 4, take(t, l, id, "").Remaining)
		testscope.InTime(t, time.Since(began), 200*time.Millisecond, "an answer of a node that does not hang")
	}
}

// withDefaults returns clients of a server with default options, which are closed with the test, before their server.
func withDefaults(t testing.TB, addr string) map[string]redis.UniversalClient {
	clients := map[string]redis.UniversalClient{
		"client":  redis.NewClient(&redis.Options{Addr: addr}),
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}}),
		"ring":    redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": addr}}),
	}
	for _, c := range clients {
		t.Cleanup(func() { require.NoError(t, c.Close()) })
	}
	return clients
}

// A server that hangs delays requests only briefly, whatever the time-outs of the client.
func TestAway(t *testing.T) {
	server := redistest.Start(t)
	clients := withDefaults(t, server.Addr)
	delete(clients, "cluster") // is none
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			l := open(t, client)
			take(t, l, "a", "")
			server.Pause()
			defer server.Resume()
			for _, request := range []string{"", "r"} {
				isBrief(t, l, request)
			}
			server.Resume()
			require.Eventually(t, func() bool {
				_, err := l.Take(context.Background(), five, "a", "")
				return err == nil
			}, 5*time.Second, 10*time.Millisecond)
		})
	}
}

// The same for a server that hangs before the first connection, and for one that does not exist.
func TestAwayFromTheBeginning(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts for it
	require.NoError(t, err)
	defer silent.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	for what, addr := range map[string]string{"silent": silent.Addr().String(), "gone": gone.Addr().String()} {
		for name, client := range withDefaults(t, addr) {
			t.Run(what+", "+name, func(t *testing.T) { isBrief(t, open(t, client), "") })
		}
	}
}

// isBrief checks that a charge fails soon.
func isBrief(t testing.TB, l *redislimit.Limiter, request string) {
	t.Helper()
	began := time.Now()
	_, err := l.Take(context.Background(), five, "a", request)
	require.Error(t, err)
	testscope.InTime(t, time.Since(began), time.Second, "the refusal")
}

// By default a client repeats an unanswered command, although it may have been executed.
func TestLostAnswerIsNotChargedTwice(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	l := open(t, withDefaults(t, proxy.Addr)["client"])
	require.Equal(t, 4, take(t, l, "lost", "").Remaining)
	proxy.SwallowReply("evalsha")
	var wg sync.WaitGroup
	wg.Go(func() {
		assert.Eventually(t, func() bool { return proxy.Swallowed() > 0 }, 5*time.Second, time.Millisecond)
		proxy.Cut()
	})
	_, err := l.Take(t.Context(), five, "lost", "")
	wg.Wait()
	require.Error(t, err)
	require.Equal(t, 2, take(t, l, "lost", "").Remaining)
}

// Close leaves the caller's client open, also one of an unknown type.
func TestCloseLeavesTheClientAlone(t *testing.T) {
	client := redistest.Start(t).Client()
	for name, given := range map[string]redis.UniversalClient{"known": client, "unknown": struct{ redis.UniversalClient }{client}} {
		l := redislimit.New(given)
		take(t, l, name, "r")
		require.NoError(t, l.Close())
		require.NoError(t, client.Ping(t.Context()).Err())
	}
}

// TestTheDocumentedACLLineIsEnoughInACluster: with what the page adds for one.
func TestTheDocumentedACLLineIsEnoughInACluster(t *testing.T) {
	testscope.Long(t, "starts a cluster")
	c, _, l := openCluster(t)
	for i := range 9 {
		require.True(t, take(t, l, strconv.Itoa(i), "r").Allowed)
	}
	for _, n := range c.Nodes {
		require.Empty(t, n.Do("ACL", "LOG"), "nothing was refused")
	}
}

// A quota is used up for as long as it takes to refill, at most: a server whose clock is set back prolongs nothing.
func TestClockSetBack(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	l := open(t, client)
	for _, request := range []string{"", "r"} {
		id := "back" + request
		// set changes the time of the stored state, as if the server's clock were set the other way.
		set := func(by time.Duration) {
			require.NoError(t, client.IncrByFloat(t.Context(), "wllock:limit:{"+id+"}", by.Seconds()).Err())
		}
		take(t, l, id, "paid")
		for range five.Quota - 1 {
			require.True(t, take(t, l, id, "").Allowed)
		}
		set(10 * time.Hour)
		isUsedUp(t, take(t, l, id, request), five)
		set(-12 * time.Minute)
		require.True(t, take(t, l, id, request).Allowed, "the quota refills")
		set(10 * time.Hour)
		r := take(t, l, id, "paid")
		require.True(t, r.Allowed, "a retry")
		require.InDelta(t, time.Hour, r.ResetAfter, float64(time.Minute))
		isUsedUp(t, take(t, l, id, ""), five)
	}
}

// isUsedUp checks that a policy has refused because all of it was used just now.
func isUsedUp(t testing.TB, r ratelimit.Result, p ratelimit.Policy) {
	t.Helper()
	require.False(t, r.Allowed)
	require.Zero(t, r.Remaining)
	require.InEpsilon(t, p.Window/time.Duration(p.Quota), r.RetryAfter, 0.05)
	require.InEpsilon(t, p.Window, r.ResetAfter, 0.05)
}

// A policy that is changed holds at once, whatever was charged before. What was used of a shorter window counts for as long
// as it took to refill.
func TestNewQuotaHoldsAtOnce(t *testing.T) {
	client := redistest.Start(t).Client()
	l := open(t, client)
	daily := ratelimit.Policy{Name: "caller", Quota: 10, Window: 24 * time.Hour}
	hourly := five
	charge := func(p ratelimit.Policy, id string) ratelimit.Result {
		r, err := l.Take(t.Context(), p, id, "")
		require.NoError(t, err)
		return r
	}
	for range daily.Quota {
		require.True(t, charge(daily, "more").Allowed)
	}
	require.False(t, charge(daily, "more").Allowed)
	isUsedUp(t, charge(hourly, "more"), hourly)
	ttl, err := client.TTL(t.Context(), "wllock:limit:{more}").Result()
	require.NoError(t, err)
	require.LessOrEqual(t, ttl, time.Hour, "it is not stored for a day")

	for range hourly.Quota {
		require.True(t, charge(hourly, "fewer").Allowed)
	}
	require.Equal(t, 8, charge(daily, "fewer").Remaining, "an hour of the day was used, and one request")
}

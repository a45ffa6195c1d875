package redislock

import (
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// ackTime is how long replicas may take in tests: longer than a busy one does.
const ackTime = 500 * time.Millisecond

// unackedBy is the error of a claim that the one replica has not acknowledged.
func unackedBy(t testing.TB, err error) {
	t.Helper()
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "0 of 1 replicas have acknowledged within 500ms")
}

// isFree waits until nobody has the lock: what is not acknowledged is released in the background.
func isFree(t testing.TB, s *redistest.Server, key string) {
	t.Helper()
	require.Eventually(t, func() bool { return s.Do("GET", key) == nil }, patience, time.Millisecond)
}

// Each lease costs a claim and a WAIT: one that is granted at once, and one that another process hands over. Servers that do not know the scripts
// cost no more WAITs that count.
func TestALeaseIsAcknowledgedByAReplica(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t)
	acking := func() user {
		return newUser(t, open(t, r.Primary.Addr, WithReplicaAcks(1, patience))).lasting(time.Minute)
	}
	u, other := acking(), acking()
	passOn(t, u.lease(key(t)), other.place(key(t)))
	const n = 20
	require.Equal(t, map[string]int{"evalsha": 3 * n, "mget": 3 * n, "time": n, "set": 2 * n, "pexpire": n, "exists": n, "del": n, "wait": n}, acked(r, func() {
		for range n {
			release(t, u.lease(key(t)))
		}
	}))
	var l distributed.Lease = u.lease(key(t))
	require.NotNil(t, r.Replica.Do("GET", key(t)))
	p := other.place(key(t))
	handed := acked(r, func() {
		release(t, l)
		l = granted(t, p)
	})
	require.Equal(t, []int{2, 1}, []int{handed["evalsha"], handed["wait"]}, "handed over")
	require.Greater(t, time.Until(l.Until()), 50*time.Second, "claimed")
	release(t, l)

	shared := acked(r, func() { release(t, u.lease(key(t), shared)) })
	require.Equal(t, 1, shared["wait"])
	r.Primary.Do("SCRIPT", "FLUSH")
	r.Primary.Do("SCRIPT", "LOAD", enterScript.Text)
	require.Equal(t, 2, acked(r, func() { l = u.lease(key(t)) })["wait"], "claim is unknown at first")
	require.NotNil(t, r.Replica.Do("GET", key(t)))
	release(t, l)
}

// acked is spent for the commands of clients: replicas send REPLCONF.
func acked(r *redistest.Replicated, f func()) map[string]int {
	all := spent(r.Primary, f)
	delete(all, "replconf")
	return all
}

// The replica hears nothing: callers are refused within the timeout, whether the lock is free, handed over, or they would queue. No lock stays
// taken. Soon after the replica is back, all are served.
func TestALeaseThatIsNotAcknowledgedIsGivenBack(t *testing.T) {
	testscope.Long(t, "has failed by chance: see CONTRIBUTING.md")
	t.Parallel()
	r := redistest.StartReplicated(t)
	k := key(t)
	u := newUser(t, open(t, r.Primary.Addr, WithReplicaAcks(1, ackTime))).lasting(time.Minute)
	other := newUser(t, open(t, r.Primary.Addr, WithReplicaAcks(1, ackTime))).lasting(time.Minute)
	l, p, work := u.lease(k), other.place(k), u.lease(k+"work")
	r.Link.Stall(true)
	for name, mode := range map[string]func(*distributed.Request){"exclusive": exclusive, "NoWait": noWait, "shared": shared} {
		inTime(t, "a free lock, "+name, ackTime, func() { unackedBy(t, u.fails(t.Context(), k+name, mode)) })
		isFree(t, r.Primary, k+name)
	}
	unackedBy(t, u.b.Detach(t.Context(), work, rand.Text(), time.Minute))
	isFree(t, r.Primary, k+"work")

	release(t, l)
	inTime(t, "a lock that is handed over", ackTime, func() {
		_, ok := <-p.Granted()
		require.False(t, ok, "delivered")
	})
	isFree(t, r.Primary, k)
	held := newUser(t, open(t, r.Primary.Addr)).lasting(time.Minute).lease(k)
	unackedBy(t, other.fails(t.Context(), k))
	require.ErrorIs(t, other.fails(t.Context(), k, noWait), distributed.ErrHeld)
	require.Eventually(t, func() bool { return queueLength(r.Primary, k) == 0 }, patience, time.Millisecond)

	r.Link.Stall(false)
	release(t, other.get(k+"shared"))
	p = other.place(k)
	release(t, held)
	release(t, granted(t, p))
}

// Many claims wait for a replica that is away: those of one moment share a WAIT, and releases and renewals do not wait behind them.
func TestClaimsThatWaitHoldUpNobody(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t)
	b := open(t, r.Primary.Addr, WithReplicaAcks(1, ackTime))
	l, kept := newUser(t, b).lease(key(t)), newUser(t, b).lease(key(t)+"kept")
	r.Link.Stall(true)
	const callers = 100
	var wg sync.WaitGroup
	spent := acked(r, func() {
		for i := range callers {
			u := newUser(t, b).lasting(time.Minute)
			wg.Go(func() { unackedBy(t, u.fails(t.Context(), key(t)+string(rune('a'+i)))) })
		}
		time.Sleep(ackTime / 2)
		inTime(t, "a release", ackTime/4, func() { release(t, l) })
		wg.Wait()
	})
	require.Eventually(t, func() bool { return time.Until(kept.Until()) > testTTL*2/3 }, testTTL, time.Millisecond, "it is renewed")
	require.Less(t, spent["wait"], callers/4)
}

func TestReplicaAcksThatCannotBe(t *testing.T) {
	t.Parallel()
	for want, opt := range map[string]Option{
		"WithReplicaAcks(0, 1s): want 1 replica or more":                    WithReplicaAcks(0, time.Second),
		"WithReplicaAcks(-1, 1s): want 1 replica or more":                   WithReplicaAcks(-1, time.Second),
		"WithReplicaAcks(1, 0s): want a timeout above 0s, at most 1m0s":     WithReplicaAcks(1, 0),
		"WithReplicaAcks(1, -1s): want a timeout above 0s, at most 1m0s":    WithReplicaAcks(1, -time.Second),
		"WithReplicaAcks(1, 1h0m0s): want a timeout above 0s, at most 1m0s": WithReplicaAcks(1, time.Hour),
	} {
		_, err := Open("redis://127.0.0.1", opt)
		require.EqualError(t, err, "redislock: "+want)
	}
	s := redistest.Start(t)
	user := func(rules ...any) *redis.Client {
		return s.Client(s.AddUser(t, "redis.md", "shop", rules...))
	}
	ping := func(want string, c *redis.Client, opts ...Option) {
		t.Helper()
		err := with(t, c, append(opts, WithReplicaAcks(2, 50*time.Millisecond))...).Ping(t.Context())
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.ErrorContains(t, err, want)
	}
	ping("the user lacks the ACL rule +wait", user(), WithSystem("shop"))
	ping("0 of 2 replicas have acknowledged within 50ms", user("+wait"), WithSystem("shop"))
	ping("0 of 2 replicas have acknowledged within 50ms", s.Client())

	r := redistest.StartReplicated(t)
	u := newUser(t, open(t, r.Primary.Addr, WithReplicaAcks(1, time.Second)))
	require.ErrorContains(t, u.lasting(time.Second).fails(t.Context(), key(t)), "and replicas that may take 1s: use at least 1.")
	release(t, u.lasting(1500*time.Millisecond).lease(key(t)))
}

// In a cluster the node of the key is asked, also when the key has moved there. A node without replicas refuses its locks, and those of no other.
func TestNodesOfAClusterAcknowledgeTheirOwn(t *testing.T) {
	testscope.Long(t, "starts a cluster")
	t.Parallel()
	c := redistest.StartCluster(t)
	const key = "acks:k:1"
	slot, from, to := aMove(c, key)
	replica := c.AddReplica(from)
	u := newUser(t, with(t, c.Client(), WithReplicaAcks(1, ackTime))).lasting(5 * time.Second)
	var elsewhere string
	for i := 0; elsewhere == ""; i++ {
		if of, _ := c.Owner(fmt.Sprint("acks:k:", i)); of != from {
			elsewhere = fmt.Sprint("acks:k:", i)
		}
	}
	has := func(s *redistest.Server) bool {
		keys, _ := s.Do("CLUSTER", "COUNTKEYSINSLOT", slot).(int64)
		return keys > 0
	}
	l := u.get(key)
	require.True(t, has(replica))
	release(t, l)
	unackedBy(t, u.fails(t.Context(), elsewhere))
	replica2 := c.AddReplica(to)
	move(slot, from, to, 0)
	for range 3 {
		l = u.get(key)
		require.True(t, has(replica2))
		require.False(t, has(replica))
		release(t, l)
	}
}

// What the option is for, and what it does not do: the primary is cut off and killed soon after a grant, and a replica that is a little behind is
// promoted. Where that replica acknowledges, it has all leases. Where another one does, it lacks as many as without the option.
func TestWhatAFailoverLoses(t *testing.T) {
	testscope.Long(t, "kills and promotes servers hundreds of times")
	t.Parallel()
	const rounds, behind = 120, 10 * time.Millisecond
	for name, test := range map[string]struct {
		opts     []Option
		replicas int
		loses    bool
	}{
		"without":                     {nil, 1, true},
		"acknowledged":                {[]Option{WithReplicaAcks(1, time.Second)}, 1, false},
		"acknowledged by another":     {[]Option{WithReplicaAcks(1, time.Second)}, 2, true},
		"acknowledged by both of two": {[]Option{WithReplicaAcks(2, time.Second)}, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, rnd := redistest.StartReplicated(t), testseed.Rand(t)
			if test.replicas == 2 {
				redistest.Start(t).Do("REPLICAOF", "127.0.0.1", r.Primary.Port)
			}
			lost := 0
			for range rounds {
				r.Follow(test.replicas)
				r.Link.SetDelay(time.Duration(rnd.Int64N(int64(behind))))
				b, err := Open("redis://"+r.Primary.Addr, test.opts...)
				require.NoError(t, err)
				newUser(t, b).lasting(time.Minute).lease(key(t))
				time.Sleep(time.Duration(rnd.Int64N(int64(behind)))) // the function
				r.Link.SetHalfOpen(true)
				r.Primary.Kill()
				r.Promote()
				if r.Replica.Do("GET", key(t)) == nil {
					lost++
				}
				_ = b.Close()
				r.Link.SetHalfOpen(false)
				r.Link.Cut()
				r.Link.SetDelay(0)
				r.Primary.Restart()
			}
			t.Logf("%d of %d leases were lost", lost, rounds)
			require.Equal(t, test.loses, lost > 0)
		})
	}
}

// BenchmarkReplicaAcks is what a lease costs with a replica near by, and what its acknowledgement adds.
func BenchmarkReplicaAcks(b *testing.B) {
	for name, opts := range map[string][]Option{"without": nil, "acknowledged": {WithReplicaAcks(1, time.Second)}} {
		b.Run(name, func(b *testing.B) {
			u := newUser(b, open(b, redistest.StartReplicated(b).Primary.Addr, opts...)).lasting(5 * time.Second)
			for b.Loop() {
				release(b, u.get("bench:acks:1"))
			}
		})
	}
}

package redislock

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
)

func TestScriptFlushUnderLoadIsUnseen(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	var stop atomic.Bool
	var turns atomic.Int64
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop.Store(true)
	for range 4 {
		u := newUser(t, b).lasting(time.Minute)
		wg.Go(func() {
			for !stop.Load() {
				if err := u.get(key(t)).Release(t.Context()); err != nil {
					t.Error(err)
				}
				turns.Add(1)
			}
		})
	}
	for range 50 {
		s.Do("SCRIPT", "FLUSH")
		before := turns.Load()
		require.Eventually(t, func() bool { return turns.Load() > before+4 }, patience, time.Millisecond, "callers go on")
	}
}

func TestFencesGrowOverARestartWithoutData(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	l := newUser(t, b).lease(key(t))
	last := fence(t, l)
	other := newUser(t, open(t, s.Addr))
	p := other.place(key(t))
	s.Restart()
	<-l.Lost()
	_, ok := <-p.Granted()
	require.False(t, ok, "the queue was lost with the data: enter again")
	next := other.get(key(t))
	require.Greater(t, fence(t, next), last)
	release(t, next)
}

// A server that is killed and keeps an append-only file has what it has acknowledged when it is back: Redis hands each write to the system
// before it answers, whatever appendfsync says.
func TestAnAppendOnlyFileOutlivesAKill(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
	u := newUser(t, open(t, s.Addr)).lasting(patience)
	l := u.lease(key(t))
	before, p := fence(t, l), u.other().place(key(t))
	s.Restart()
	require.ErrorIs(t, newUser(t, open(t, s.Addr)).fails(t.Context(), key(t), noWait), distributed.ErrHeld)
	release(t, l)
	next := granted(t, p)
	require.Greater(t, fence(t, next), before)
	release(t, next)
}

func TestFencesCarryAndObeyWhatWasSeen(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	u := newUser(t, b)
	k := keysOf(key(t), "")
	// the stored fence is ahead of the clock, and its nanoseconds are about to carry
	s.Do("SET", k[1], "4000000000999999999")
	l := u.lease(key(t))
	require.Equal(t, uint64(4000000001000000000), fence(t, l))
	release(t, l)
	require.Equal(t, "4000000001000000999", s.Do("GET", k[1]), "a block is reserved")
	// the server has forgotten, the process has not
	s.Do("FLUSHALL")
	l = u.lease(key(t))
	require.Greater(t, fence(t, l), uint64(4000000001000000000))
	release(t, l)
}

// TestReadersOfDifferentTTL: the set of readers once lived as long as the TTL of the last one to use it; a long lease was no
// member any more then, and a writer was admitted beside it.
func TestReadersOfDifferentTTL(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	long, short := newUser(t, b).lasting(20*time.Minute), newUser(t, b).lasting(5*time.Second)
	k := keysOf(key(t), "")
	keeps := func(names ...string) {
		t.Helper()
		for _, name := range names {
			require.Greater(t, s.Do("PTTL", name), int64(79*60*1000), name)
		}
	}
	l := long.lease(key(t), shared)
	places := []distributed.Place{short.place(key(t)), long.other().place(key(t)), short.other().place(key(t), shared)}
	keeps(k[2:5]...) // queue, waiters, readers
	for _, p := range places {
		require.NoError(t, p.Leave(t.Context()))
	}
	release(t, short.lease(key(t), shared))
	b.s.renewBatch(t.Context(), []*attempt{short.lease(key(t), shared).a})
	keeps(k[readersKey])
	require.ErrorIs(t, short.other().fails(t.Context(), key(t), noWait), distributed.ErrHeld)
	release(t, l)
}

// A copy of the process, as one that is restored from a snapshot, has its name and counts on from the same number. What it asks for is a
// request of its own, and no repeat: neither at once, nor in the queue.
func TestCopyOfTheProcessIsAnother(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	twin := open(t, s.Addr)
	twin.s.process = b.s.process
	for _, mode := range []distributed.Mode{distributed.Exclusive, distributed.Shared} {
		number, its := b.client.NextNumber(), twin.client.NextNumber()
		for ; number < its; number = b.client.NextNumber() {
		}
		for ; its < number; its = twin.client.NextNumber() {
		}
		req := distributed.Request{Key: key(t) + mode.String(), Instance: "i", Mode: mode, Limit: int(mode), TTL: time.Minute}
		l, _, err := b.Enter(t.Context(), req)
		require.NoError(t, err)
		l2, _, err := twin.Enter(t.Context(), req)
		require.True(t, l2 == nil, "granted")
		if err != nil { // it is taken for an earlier attempt
			require.ErrorIs(t, err, distributed.ErrRefused)
		}
		require.NoError(t, l.Release(t.Context()))
	}
}

// An Enter does not find the lease that it is to release. If it is a repeat that comes late, its first try may have released that, and have been
// granted the lock until that expired. Else the lease was lost.
func TestARepeatThatComesLateTellsOfNoLoss(t *testing.T) {
	const ttl, soon, late = 4 * time.Second, 900 * time.Millisecond, 1100 * time.Millisecond // around W/2
	for name, one := range map[string]struct {
		waits time.Duration // until it is sent
		fails time.Duration // when its first try does; 0: it does not
		lost  bool
	}{
		"answered at once": {lost: true},
		"sent late":        {waits: late, lost: true},
		"repeated soon":    {fails: soon, lost: true},
		"repeated late":    {fails: late},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				b := openStub(t, func(c *conn.Call) (string, error) {
					if c.Key() == "shop:2" {
						time.Sleep(one.waits)
						return "held 1 another 0", nil
					}
					switch tries++; {
					case tries == 1:
						return "lease 4000000000000000000 1000 0", nil
					case tries == 2 && one.fails > 0:
						time.Sleep(one.fails)
						return "", context.DeadlineExceeded
					}
					return "lost lease 4000000000000001000 1000 0", nil
				}, "shop")
				u := newUser(t, b).lasting(ttl)
				l := u.lease("shop:1")
				go func() { _, _, _ = newUser(t, b).enter(t.Context(), "shop:2", noWait) }() // has the one slot
				synctest.Wait()
				u.lease("shop:1", func(r *distributed.Request) { r.Prev = l })
				if one.lost {
					require.ErrorIs(t, l.Release(t.Context()), distributed.ErrLeaseLost)
				} else {
					require.NoError(t, l.Release(t.Context()))
				}
			})
		})
	}
}

// lateEnter keeps the first enter of a backend from its server: it gets no answer and is repeated. What is returned gives the copy to send later.
func lateEnter(b *Backend) func() *conn.Call {
	var late *conn.Call
	aroundCalls(b, func(ctx context.Context, next conn.Transport, calls []*conn.Call) {
		if c := calls[0]; c.Script == enterScript && late == nil {
			late = &conn.Call{Script: c.Script, Args: c.Args}
			c.Err = context.DeadlineExceeded
			return
		}
		next.Do(ctx, calls...)
	})
	return func() *conn.Call { return late }
}

// A late copy of the enter of a lease that was lost takes a place. The next enter releases that lease and its place: else NoWait is told
// that the lock is held, by the lease that it releases.
func TestTheCopyOfALostLeaseDoesNotStandInTheWay(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	copied := lateEnter(b)
	u := newUser(t, b).lasting(time.Minute) // no renewal finds the loss
	l := u.lease("k")
	s.Do("DEL", "k")
	newUser(t, open(t, s.Addr)).lasting(time.Minute).lease("k")
	late := copied()
	b.s.tr.Do(t.Context(), late)
	require.NoError(t, late.Err)
	require.Contains(t, late.Reply, "place 0")
	s.Do("DEL", "k")
	release(t, u.lease("k", noWait, func(r *distributed.Request) { r.Prev = l }))
	require.ErrorIs(t, l.Release(t.Context()), distributed.ErrLeaseLost)
}

// An enter that was sent twice may be carried out once more when the lock of its place has expired and others have had it. An answer to a heartbeat
// that comes only then tells of the grant before, whose fence is smaller than theirs.
func TestALateAnswerBringsNoOldFence(t *testing.T) { // rule R9
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	copied := lateEnter(b)
	answered, arrives := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	aroundCalls(b, func(ctx context.Context, next conn.Transport, calls []*conn.Call) {
		next.Do(ctx, calls...)
		if calls[0].Script == heartbeatScript && strings.HasPrefix(calls[0].Reply, "lease") && once.CompareAndSwap(false, true) {
			close(answered)
			<-arrives
		}
	})
	l := newUser(t, open(t, s.Addr)).lasting(time.Minute).lease("k")
	p := newUser(t, b).place("k")
	release(t, l)
	<-answered
	last := grantedAgain(t, b, s, copied())
	close(arrives)
	require.Greater(t, fence(t, granted(t, p)), last)
}

// grantedAgain has the lock of a grant that expires, and returns that fence. Then a copy of the enter before comes.
func grantedAgain(t *testing.T, b *Backend, s *redistest.Server, late *conn.Call) uint64 {
	between := newUser(t, open(t, s.Addr)).get("k")
	last := fence(t, between)
	release(t, between)
	b.s.tr.Do(t.Context(), late)
	require.NoError(t, late.Err)
	require.Equal(t, hasLease, readStanding(late.Reply, time.Now()).kind)
	return last
}

// The answer to the enter itself may be as late.
func TestALateAnswerToAnEnterBringsNoOldFence(t *testing.T) { // rule R9
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	copied := lateEnter(b)
	var once atomic.Bool
	var last uint64
	aroundCalls(b, func(ctx context.Context, next conn.Transport, calls []*conn.Call) {
		next.Do(ctx, calls...)
		if calls[0].Script == enterScript && calls[0].Err == nil && once.CompareAndSwap(false, true) {
			last = grantedAgain(t, b, s, copied())
		}
	})
	u := newUser(t, b)
	if l, _, err := u.enter(t.Context(), "k"); err == nil {
		require.Greater(t, fence(t, l), last)
	} else {
		require.ErrorIs(t, err, distributed.ErrUnavailable)
	}
	require.Positive(t, last)
	release(t, u.get("k"))
}

// The server has no note of a lease that was overwritten as the prev of another and then released the short way. So that way is not taken
// if a copy of the first request may come late: it would take the free lock for an attempt that has ended.
func TestACopyOfAnOverwrittenEnterDoesNothing(t *testing.T) {
	t.Parallel()
	b := open(t, redistest.Start(t).Addr)
	copied := lateEnter(b)
	u := newUser(t, b)
	l := u.lease("k")
	next := u.lease("k", func(r *distributed.Request) { r.Prev = l })
	require.NoError(t, next.Release(t.Context()))
	late := copied()
	b.s.tr.Do(t.Context(), late)
	require.NoError(t, late.Err)
	require.Equal(t, "old", late.Reply)
}

// TestOneLostHeartbeatCostsNoPlace, where PUBLISH does not tell who listens: the next one was once sent only when the place
// had been given up.
func TestOneLostHeartbeatCostsNoPlace(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const ttl = 3 * time.Second
	var toLose atomic.Int32
	backend := func() *Backend {
		b := open(t, s.Addr)
		require.NoError(t, b.Ping(t.Context()))
		b.s.single.Store(false)
		return b
	}
	holder, first, second := backend(), backend(), backend()
	aroundCalls(first, func(ctx context.Context, next conn.Transport, calls []*conn.Call) {
		if calls[0].Script != heartbeatScript || toLose.Add(-1) < 0 {
			next.Do(ctx, calls...)
			return
		}
		until, _ := ctx.Deadline() // as on a connection that hangs
		time.Sleep(time.Until(until))
		for _, c := range calls {
			c.Err = context.DeadlineExceeded
		}
	})
	l := newUser(t, holder).lasting(ttl).lease(key(t))
	p1 := newUser(t, first).lasting(ttl).place(key(t))
	p2 := newUser(t, second).lasting(ttl).place(key(t))
	toLose.Store(1)
	time.Sleep(ttl/3 + 130*time.Millisecond) // silent for longer than a waiter may be
	passOn(t, l, p1, p2)
}

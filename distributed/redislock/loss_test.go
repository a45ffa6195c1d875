package redislock

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

func TestLockTakenAwayIsNoticedAtTheNextRenewal(t *testing.T) {
	testscope.Long(t, "waits for leases to end")
	t.Parallel()
	s := redistest.Start(t)
	for name, take := range map[string]func(key string){
		"DEL":      func(key string) { s.Do("DEL", key) },
		"FLUSHALL": func(string) { s.Do("FLUSHALL") },
	} {
		const ttl = 3 * testTTL
		u := newUser(t, open(t, s.Addr)).lasting(ttl)
		l := u.lease(key(t))
		last := fence(t, l)
		time.Sleep(ttl / 2) // claimed by now, so the next renewal comes within T/3
		take(key(t))
		start := time.Now()
		<-l.Lost()
		inTime(t, name+" while held: lost", time.Since(start), distributed.RenewInterval(ttl))
		require.ErrorIs(t, l.Release(t.Context()), distributed.ErrLeaseLost)
		next := newUser(t, open(t, s.Addr)).lease(key(t)) // of a process that has seen no fence
		require.Greater(t, fence(t, next), last)
		release(t, next)
	}
}

func TestScriptFlushUnderLoadIsUnseen(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		u := newUser(t, b)
		wg.Go(func() {
			for !stop.Load() {
				if l := u.get(key(t)); l.Release(t.Context()) != nil {
					t.Error("a release failed")
				}
			}
		})
	}
	for range 50 {
		s.Do("SCRIPT", "FLUSH")
		time.Sleep(5 * time.Millisecond)
	}
	stop.Store(true)
	wg.Wait()
}

func TestFencesGrowOverARestartWithoutData(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	u := newUser(t, open(t, s.Addr))
	l := u.lease(key(t))
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

func TestFencesCarryAndObeyWhatWasSeen(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	u := newUser(t, open(t, s.Addr))
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

func TestHelperKeysExpire(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	l, reader := newUser(t, b).lease(key(t)), newUser(t, b).lease(key(t)+"s", shared)
	p, q := newUser(t, b).place(key(t)), newUser(t, b).place(key(t)+"s")
	release(t, newUser(t, b).lease(key(t)+"r"))
	names := s.Do("KEYS", "*").([]any)
	require.GreaterOrEqual(t, len(names), 10)
	for _, name := range names {
		require.Positive(t, s.Do("PTTL", name), name)
	}
	release(t, l)
	release(t, granted(t, p))
	release(t, reader)
	release(t, granted(t, q))
}

func TestLeaseOutlivesManyTTLs(t *testing.T) {
	testscope.Long(t, "waits for leases to end")
	t.Parallel()
	s := redistest.Start(t)
	u := newUser(t, open(t, s.Addr)).lasting(150 * time.Millisecond)
	l := u.lease(key(t))
	for start := time.Now(); time.Since(start) < 2*time.Second; time.Sleep(20 * time.Millisecond) {
		require.False(t, distributed.Over(time.Now(), l.Until()))
	}
	release(t, l)
}

// TestReadersOfDifferentTTL: the set of readers once lived as long as the TTL of the last one to use it; a long lease was no
// member any more then, and a writer was admitted beside it.
func TestReadersOfDifferentTTL(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	long, short := newUser(t, open(t, s.Addr)).lasting(20*time.Minute), newUser(t, open(t, s.Addr)).lasting(5*time.Second)
	writer := newUser(t, open(t, s.Addr)).lasting(5 * time.Second)
	k := keysOf(key(t), "")
	l := long.lease(key(t), shared)
	w := writer.place(key(t))
	l2 := newUser(t, open(t, s.Addr)).lasting(20 * time.Minute).place(key(t))
	p := short.place(key(t), shared)
	for _, name := range k[2:5] { // queue, waiters, readers
		require.Greater(t, s.Do("PTTL", name), int64(79*60*1000), name)
	}
	require.NoError(t, p.Leave(t.Context()))
	require.NoError(t, w.Leave(t.Context()))
	require.NoError(t, l2.Leave(t.Context()))
	release(t, short.lease(key(t), shared))
	short.b.s.renewBatch(t.Context(), []*attempt{short.lease(key(t), shared).a})
	require.Greater(t, s.Do("PTTL", k[4]), int64(79*60*1000))
	_, _, err := writer.enter(t.Context(), key(t), noWait)
	require.ErrorIs(t, err, distributed.ErrHeld)
	release(t, l)
}

// TestLostLeaseIsNotReleasedByALaterAttempt: a lease that was lost at the server is not reported as released.
func TestLostLeaseIsNotReleasedByALaterAttempt(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	u, other := newUser(t, b), newUser(t, open(t, s.Addr))
	l := u.lease(key(t))
	s.Do("DEL", key(t))
	release(t, other.lease(key(t))) // somebody else was in
	l2 := u.lease(key(t))
	require.ErrorIs(t, l.Release(t.Context()), distributed.ErrLeaseLost)
	release(t, l2)
}

// TestPrevReleasedByAnEarlierTryIsNotLost: the answer to the Enter that released it was lost, and by the time of the repeat
// the new lease had expired. The clean release was once reported as ErrLeaseLost.
func TestPrevReleasedByAnEarlierTryIsNotLost(t *testing.T) {
	testscope.Long(t, "waits for leases to end")
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	u := newUser(t, b).lasting(lateReplyTTL)
	prev := u.lease(key(t))
	swapTransport(b, func(tr conn.Transport) conn.Transport { return &lateReply{Transport: tr} })
	l := u.lease(key(t), func(r *distributed.Request) { r.Prev = prev })
	require.NoError(t, prev.Release(t.Context()))
	release(t, l)
}

// lateReplyTTL is long enough for H to be a LongestTry, and for margins that a busy machine keeps.
const lateReplyTTL = 6 * conn.LongestTry

// lateReply loses the reply of the first enter, and answers only when what it granted has expired.
type lateReply struct {
	conn.Transport
	lost atomic.Bool
}

func (l *lateReply) Do(ctx context.Context, calls ...*conn.Call) {
	first := calls[0].Script == enterScript && !l.lost.Swap(true)
	if !first && calls[0].Tries == 2 {
		time.Sleep(conn.LongestTry / 2) // of LongestTry
	}
	l.Transport.Do(ctx, calls...)
	if first {
		time.Sleep(distributed.ClaimWindow(lateReplyTTL) - 400*time.Millisecond) // there is just time for another try
		calls[0].Reply, calls[0].Err = "", context.DeadlineExceeded
	}
}

// TestNoWaitAmongReadersHasOneAnswer: the Enter that let the queued readers in was once refused, and its repeat was not.
func TestNoWaitAmongReadersHasOneAnswer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	u := newUser(t, b)
	writer := u.lease(key(t))
	p := newUser(t, b).place(key(t), shared)
	l := u.lease(key(t), shared, noWait, func(r *distributed.Request) { r.Prev = writer })
	reader := granted(t, p)
	require.Greater(t, fence(t, l), fence(t, reader))
	release(t, l)
	release(t, reader)
}

package register

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
)

// bench is a memory in a bubble, and processes over it.
type bench struct {
	*testing.T
	m *memory
}

func inBubble(t *testing.T, f func(b bench)) {
	t.Helper()
	t.Parallel()
	over(t, forgets, f)
}

func over(t *testing.T, k kind, f func(b bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(bench{t, newMemory(k)}) })
}

func (b bench) process(seed uint64) process {
	p := newProcess(b.m, 1, seed, false)
	b.Cleanup(func() {
		require.NoError(b, p.Close())
		p.l.late.Wait()
	})
	return p
}

func (b bench) enter(p process, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	req.Key, req.TTL = "k", simTTL
	return p.Enter(b.Context(), req)
}

func (b bench) lease(p process, req distributed.Request) distributed.Lease {
	l, _, err := b.enter(p, req)
	require.NoError(b, err)
	require.NotNil(b, l)
	return l
}

func (b bench) place(p process, req distributed.Request) distributed.Place {
	_, place, err := b.enter(p, req)
	require.NoError(b, err)
	require.NotNil(b, place)
	return place
}

// after waits for something, and returns how long that took.
func (b bench) after(what string, is func() bool) time.Duration {
	start := time.Now()
	for ; !is(); time.Sleep(time.Millisecond) {
		require.Less(b, time.Since(start), time.Minute, what)
	}
	return time.Since(start)
}

var permit = distributed.Request{Instance: "permit", Mode: distributed.Shared, Limit: 2}

// An owner is dead when its beat has stood still for its period since it was read first, and not by anybody's clock but the reader's.
func TestReap(t *testing.T) {
	start := time.Now()
	reap := func(seen sightings, l *lock, d time.Duration) bool { return seen.reap(l, start.Add(d), nil) }
	l, seen := &lock{Owners: []claim{{ID: "a", TTL: simTTL}}, Queue: []claim{{ID: "b", TTL: simTTL}, {ID: "c", TTL: simTTL}}}, sightings{}
	require.False(t, reap(seen, l, 0))
	require.False(t, reap(seen, l, simTTL/2), "a grant has its claim window")
	l.Owners[0].Beat = 1
	require.False(t, reap(seen, l, simTTL/2+1), "it was claimed")
	require.False(t, reap(seen, l, simTTL/2+1+simTTL))
	require.True(t, reap(seen, l, simTTL/2+1+simTTL+1))
	require.Equal(t, "b", l.Owners[0].ID, "the head of the queue is granted")
	require.Equal(t, "c", l.Queue[0].ID)
	require.False(t, reap(seen, l, 10*simTTL), "one that was read for the first time")
	require.Len(t, seen, 1)
	require.True(t, reap(seen, l, 10*simTTL+simTTL/2+1), "and was not claimed")
}

// A waiter that others have taken out, since its process was silent, queues again under its id. Who has seen it before, and not that it was
// away, counts anew: else two would hold the lock.
func TestAClaimThatIsQueuedAgainIsSeenForTheFirstTime(t *testing.T) {
	inBubble(t, func(b bench) {
		holder, sleeper := b.process(1), b.process(2)
		b.lease(holder, distributed.Request{Instance: "a"})
		p := b.place(sleeper, distributed.Request{Instance: "b"})
		sleeper.l.set(true, time.Hour)
		time.Sleep(simTTL)
		require.NoError(t, holder.Close())
		b.m.lose("k")
		seen, look := sightings{}, func() (l lock) {
			l, err := b.m.read("k")
			require.NoError(t, err)
			return l
		}
		sleeper.l.set(false, 0)
		l := b.granted(p)
		now := look()
		require.Len(t, now.Owners, 1)
		now.Owners[0].Again = 0 // as it was granted before
		now.Owners[0].Beat = 0
		seen.reap(&now, time.Now().Add(-simTTL), nil)
		now = look()
		require.False(t, seen.reap(&now, time.Now(), nil))
		require.NoError(t, l.Release(b.Context()))
	})
}

func (b bench) granted(p distributed.Place) distributed.Lease {
	var l distributed.Lease
	b.after("granted", func() bool {
		select {
		case one, ok := <-p.Granted():
			require.True(b, ok)
			l = one
			return true
		default:
			return false
		}
	})
	return l
}

// A grant that nobody reads costs others the claim window, also those that do not wait.
func TestAGrantThatNobodyReads(t *testing.T) {
	inBubble(t, func(b bench) {
		p, other := b.process(1), b.process(2)
		l := b.lease(p, distributed.Request{Instance: "a"})
		place := b.place(other, distributed.Request{Instance: "b"})
		require.NoError(t, l.Release(b.Context()))
		b.after("granted", func() bool { return len(place.Granted()) > 0 })
		time.Sleep(distributed.ClaimWindow(simTTL) + 100*time.Millisecond)
		require.NoError(t, b.lease(p, distributed.Request{Instance: "a", NoWait: true}).Release(b.Context()))
	})
}

// Only renewals tell a holder that another waits. The first comes soon.
func TestAHolderLearnsSoonOfAWaiter(t *testing.T) {
	inBubble(t, func(b bench) {
		p, other := b.process(1), b.process(2)
		l := b.lease(p, distributed.Request{Instance: "a"})
		place := b.place(other, distributed.Request{Instance: "b"})
		require.LessOrEqual(t, b.after("contended", l.Contended), shortestLook+50*time.Millisecond)
		require.NoError(t, place.Leave(b.Context()))
		require.NoError(t, l.Release(b.Context()))
	})
}

// The permit of a process that has died is free for callers that do not wait, while another holds one.
func TestAHolderTakesOutTheDeadBesideIt(t *testing.T) {
	inBubble(t, func(b bench) {
		p, dies := b.process(1), b.process(2)
		l := b.lease(p, permit)
		b.lease(dies, permit)
		time.Sleep(simTTL)
		dies.l.cut(true)
		req := permit
		req.NoWait = true
		took := b.after("free", func() bool {
			l, _, err := b.enter(p, req)
			return err == nil && l.Release(b.Context()) == nil
		})
		require.Greater(t, took, simTTL*2/3)
		require.LessOrEqual(t, took, simTTL+longestLook+100*time.Millisecond)
		require.NoError(t, l.Release(b.Context()))
	})
}

// A request that arrives when its caller has given it up, and has found nothing of it, does nothing: else it would leave a place that
// nobody has, before those that come later.
func TestARequestThatArrivesTooLateDoesNothing(t *testing.T) {
	inBubble(t, func(b bench) {
		p, other := b.process(1), b.process(2)
		l := b.lease(p, distributed.Request{Instance: "a"})
		other.l.hold(`"instance":"b"`)
		ctx, cancel := context.WithTimeout(b.Context(), shortestLook/4)
		defer cancel()
		_, _, err := other.Enter(ctx, distributed.Request{Key: "k", Instance: "b", TTL: simTTL})
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		b.after("dropped", other.client.Idle)
		require.ErrorIs(t, other.l.deliver(), ErrConflict)
		require.NoError(t, l.Release(b.Context()))
	})
}

// A request that was not answered may bring its claim when its caller has been refused, or has left, and the lock is free again: then it is
// removed within a claim window, though nobody waits for the lock.
func TestALateClaimIsRemoved(t *testing.T) {
	for name, refused := range map[string]bool{"refused": true, "left": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b bench) {
				p, other := b.process(1), b.process(2)
				other.l.hold(`"instance":"b"`)
				ctx, cancel := context.WithTimeout(b.Context(), 2*time.Millisecond)
				defer cancel()
				if refused {
					ctx = b.Context()
				}
				answered := make(chan error, 1)
				go func() {
					_, _, err := other.Enter(ctx, distributed.Request{Key: "k", Instance: "b", TTL: simTTL, NoWait: refused})
					answered <- err
				}()
				time.Sleep(time.Millisecond)
				other.l.hold("") // its next tries are carried out
				if refused {
					l := b.lease(p, distributed.Request{Instance: "a"})
					require.ErrorIs(t, <-answered, distributed.ErrHeld)
					require.NoError(t, l.Release(b.Context()))
				} else {
					require.ErrorIs(t, <-answered, distributed.ErrUnavailable)
				}
				b.after("dropped", other.client.Idle)
				require.Zero(t, b.m.get("k"))
				require.NoError(t, other.l.deliver())
				require.NotZero(t, b.m.get("k"))
				time.Sleep(distributed.ClaimWindow(simTTL))
				require.Zero(t, b.m.get("k"))
			})
		})
	}
}

// So it is if another request has released what the claim of the first was.
func TestALateClaimOfAPredecessorIsRemoved(t *testing.T) {
	inBubble(t, func(b bench) {
		p := b.process(1)
		p.l.hold("owners")
		time.AfterFunc(2*time.Millisecond, func() { p.l.hold("") }) // its next tries are carried out
		l := b.lease(p, distributed.Request{Instance: "a"})
		require.NoError(t, b.lease(p, distributed.Request{Instance: "a", Prev: l}).Release(b.Context()))
		b.after("dropped", p.client.Idle)
		require.Zero(t, b.m.get("k"))
		require.NoError(t, p.l.deliver())
		require.NotZero(t, b.m.get("k"))
		time.Sleep(distributed.ClaimWindow(simTTL))
		require.Zero(t, b.m.get("k"))
	})
}

// A look that is under way when its waiter leaves may queue it again, for its document was lost. The removal comes after it.
func TestALeaveComesAfterTheLook(t *testing.T) {
	inBubble(t, func(b bench) {
		p, other := b.process(1), b.process(2)
		other.l.trip = simTTL / 50
		for i := range 40 {
			b.lease(p, distributed.Request{Instance: "a"}).Abandon()
			place := b.place(other, distributed.Request{Instance: "b"})
			b.m.lose("k")
			time.Sleep(time.Duration(i) * simTTL / 500)
			require.NoError(t, place.Leave(b.Context()))
			time.Sleep(simTTL)
			require.Zero(t, b.m.get("k"), i)
		}
	})
}

// scripted is a Store whose writes a test carries out, by their numbers from 1.
type scripted struct {
	able
	n   int
	put func(n int, put func() (Version, error)) (Version, error)
}

func (s *scripted) Put(ctx context.Context, key string, data []byte, from Version, keep time.Duration) (Version, error) {
	s.n++
	return s.put(s.n, func() (Version, error) { return s.able.Put(ctx, key, data, from, keep) })
}

// A request that was not answered may come when the lock of the next try has been taken away, and others have had it. If the answer to the next try
// is late, its claim finds the lock, but the fence is that of before.
func TestALateAnswerBringsNoOldFence(t *testing.T) {
	t.Parallel()
	over(t, tells, func(b bench) {
		other, begin := b.process(2), time.Now()
		var late func() (Version, error)
		var place distributed.Place
		var last uint64 // the fence of others
		p := New("sim", &scripted{able: able{newLink(b.m, 1, 1, false)}, put: func(n int, put func() (Version, error)) (v Version, err error) {
			switch n {
			case 1:
				late = put
				return "", errSilent
			case 2:
				v, err = put()
				place = b.place(other, distributed.Request{Instance: "b"})
				time.Sleep(time.Until(begin.Add(distributed.ClaimWindow(simTTL) * 9 / 10)))
				return v, err
			case 3: // the claim
				between := <-place.Granted()
				last, _ = between.NextFence()
				require.NoError(b, between.Release(b.Context()))
				_, err = late()
				require.NoError(b, err)
			}
			return put()
		}})
		defer func() { require.NoError(b, p.Close()) }()
		l, _, err := p.Enter(b.Context(), distributed.Request{Key: "k", Instance: "a", TTL: simTTL})
		require.NotZero(b, last)
		if err == nil {
			fence, _ := l.NextFence()
			require.Greater(b, fence, last)
		} else {
			require.ErrorIs(b, err, distributed.ErrUnavailable)
		}
	})
}

// A renewal that is under way while its lease is released renews nothing that a late request has brought again: else it would cost others T,
// and not a claim window.
func TestARenewalIsOverWithItsLease(t *testing.T) {
	inBubble(t, func(b bench) {
		p := b.process(1)
		l := b.lease(p, distributed.Request{Instance: "a"})
		a := driver.AttemptOf[wire](l)
		require.NoError(t, l.Release(b.Context()))
		late := lock{Owners: []claim{a.Wire.claim}}
		_, err := b.m.put("k", late.encode(), "", late.keep())
		require.NoError(t, err)
		half{p.Backend}.renew(b.Context(), a, nil)
		got, err := b.m.read("k")
		require.NoError(t, err)
		require.Equal(t, late.Owners, got.Owners)
	})
}

// A request that others cross while the Backend is closed says that it is closed.
func TestARequestIsCrossedWhileTheBackendCloses(t *testing.T) {
	inBubble(t, func(b bench) {
		p, other := b.process(1), b.process(2)
		l := b.lease(p, distributed.Request{Instance: "a"})
		other.l.last(true)
		time.AfterFunc(simTTL/10, func() { _ = other.Close() })
		start := time.Now()
		_, _, err := b.enter(other, distributed.Request{Instance: "b"})
		require.ErrorIs(t, err, distributed.ErrClosed)
		require.Less(t, time.Since(start), simTTL/10+time.Second+simTTL/20)
		require.NoError(t, l.Release(b.Context()))
	})
}

// Who waits while no connection is possible asks a few times per second, though the holder is overdue.
func TestAServiceThatIsAwayIsAskedSeldom(t *testing.T) {
	inBubble(t, func(b bench) {
		p, other := b.process(1), b.process(2)
		l := b.lease(p, distributed.Request{Instance: "a"})
		place := b.place(other, distributed.Request{Instance: "b"})
		time.Sleep(time.Second)
		other.l.fail(distributed.Unavailable("sim", errors.New("no connection"), distributed.ErrUnreached))
		time.Sleep(2 * simTTL)
		before := other.l.count()
		time.Sleep(10 * longestPoll)
		require.LessOrEqual(t, other.l.count()-before, 20)
		other.l.fail(nil)
		require.NoError(t, l.Release(b.Context()))
		require.NoError(t, b.granted(place).Release(b.Context()))
	})
}

// A request that others have crossed each time has written nothing. So when its caller goes, nothing is written to be sure of that: many
// such callers would hold up those that stay. It says what became of it.
func TestARequestThatWasOnlyCrossedWritesNothing(t *testing.T) {
	inBubble(t, func(b bench) {
		p, other := b.process(1), b.process(2)
		l := b.lease(p, distributed.Request{Instance: "a"})
		other.l.last(true)
		ctx, cancel := context.WithTimeout(b.Context(), simTTL/50)
		defer cancel()
		_, _, err := other.Enter(ctx, distributed.Request{Key: "k", Instance: "b", TTL: simTTL})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		require.ErrorContains(t, err, "others changed the lock first, ")
		require.Less(t, b.after("dropped", other.client.Idle), simTTL/10)
		require.NoError(t, l.Release(b.Context()))
	})
}

// Forty that begin together on a slow network lose many writes to each other. Each of them is in the queue in the end, however long it takes,
// and the caller's time alone ends that.
func TestACrowdOnASlowNetwork(t *testing.T) {
	inBubble(t, func(b bench) {
		var all sync.WaitGroup
		defer all.Wait()
		for i := range 40 {
			p := b.process(uint64(i))
			p.l.trip = simTTL / 60 // at most, each way
			all.Go(func() {
				_, _, err := b.enter(p, distributed.Request{Instance: strconv.Itoa(i)})
				require.NoError(b, err)
			})
		}
	})
}

// A service that takes no more requests for now is asked again for the claim window. It has refused, for the judge of an outage.
func TestBusyService(t *testing.T) {
	inBubble(t, func(b bench) {
		p, busy := b.process(1), distributed.Unavailable("sim", errors.New("too many connections"), distributed.ErrRefused, ErrBusy)
		p.l.fail(busy)
		start := time.Now()
		_, _, err := b.enter(p, distributed.Request{Instance: "a"})
		require.ErrorIs(b, err, distributed.ErrRefused)
		require.ErrorContains(b, err, "too many connections")
		require.InDelta(b, distributed.ClaimWindow(simTTL), time.Since(start), float64(longestPause))
		time.AfterFunc(simTTL/10, func() { p.l.fail(nil) })
		require.NoError(b, b.lease(p, distributed.Request{Instance: "a"}).Release(b.Context()))
	})
}

// A request that was carried out and not answered was granted when it was sent first, whenever its repetition finds that.
func TestAGrantIsAsOldAsItsFirstRequest(t *testing.T) {
	inBubble(t, func(b bench) {
		p := b.process(1)
		p.l.hold("owners")
		start := time.Now()
		time.AfterFunc(simTTL/50, func() {
			p.l.cut(true)
			p.l.hold("")
			require.NoError(b, p.l.deliver())
		})
		time.AfterFunc(simTTL/8, func() { p.l.cut(false) })
		l := b.lease(p, distributed.Request{Instance: "a"})
		require.Greater(b, time.Since(start), simTTL/8)
		require.False(b, l.Until().After(distributed.Validity(start, distributed.ClaimWindow(simTTL))))
	})
}

// No call outlasts its context while the service is silent, though no exchange looks at that.
func TestNoCallerWaitsForASilentStore(t *testing.T) {
	inBubble(t, func(b bench) {
		p := b.process(1)
		l := b.lease(p, distributed.Request{Instance: "a"})
		p.l.cut(true)
		for _, call := range []func(ctx context.Context) error{
			func(ctx context.Context) error {
				_, _, err := p.Enter(ctx, distributed.Request{Key: "another", Instance: "a", TTL: simTTL})
				return err
			},
			l.Release,
		} {
			ctx, cancel := context.WithTimeout(b.Context(), simTTL/1000)
			start := time.Now()
			require.ErrorIs(t, call(ctx), distributed.ErrUnavailable)
			require.Equal(t, simTTL/1000, time.Since(start))
			cancel()
		}
	})
}

// Leases that expire together, since the service is away, do not ask it all at a time.
func TestWhatExpiresTogetherIsRemovedFewAtATime(t *testing.T) {
	inBubble(t, func(b bench) {
		p := b.process(1)
		for i := range 8 * most {
			_, _, err := p.Enter(b.Context(), distributed.Request{Key: strconv.Itoa(i), Instance: "a", TTL: simTTL})
			require.NoError(t, err)
		}
		time.Sleep(simTTL)
		p.l.cut(true)
		time.Sleep(2 * simTTL)
		p.l.mu.Lock()
		defer p.l.mu.Unlock()
		require.LessOrEqual(t, p.l.most, most+mostWritten) // renewals, too
	})
}

// A request that is not answered when the Backend is closed is not sent again: a grant to it would stay.
func TestNothingIsSentAfterClose(t *testing.T) {
	inBubble(t, func(b bench) {
		p := b.process(1)
		p.l.cut(true)
		time.AfterFunc(simTTL/10, func() {
			_ = p.Close()
			p.l.cut(false)
		})
		_, _, err := b.enter(p, distributed.Request{Instance: "a"})
		require.ErrorIs(t, err, distributed.ErrClosed)
		time.Sleep(simTTL / 2)
		require.Zero(t, b.m.get("k"))
	})
}

// A free lock costs a write, and so does its release.
func TestWhatALockCosts(t *testing.T) {
	inBubble(t, func(b bench) {
		p := b.process(1)
		l := b.lease(p, distributed.Request{Instance: "a"})
		require.Equal(t, 1, p.l.count())
		require.NoError(t, l.Release(b.Context()))
		require.Equal(t, 2, p.l.count())
	})
}

// What others keep under a lock's key is left alone.
func TestForeignDocument(t *testing.T) {
	inBubble(t, func(b bench) {
		p := b.process(1)
		for _, text := range []string{"", "{}", "12", `{"owners":[]}`, "not of ours"} {
			b.m.mu.Lock()
			b.m.docs["k"] = kept{Document{[]byte(text), "1"}, time.Now().Add(time.Hour)}
			b.m.mu.Unlock()
			_, _, err := b.enter(p, distributed.Request{Instance: "a"})
			require.ErrorIs(t, err, distributed.ErrRefused)
			require.Equal(t, text, string(b.m.get("k").Data))
		}
	})
}

// A process that dies while no other waits leaves a lock that callers find held who do not wait. Where the Store keeps it, they take it out
// when they have found it so for T.
func TestNoWaitTakesOutTheDead(t *testing.T) {
	t.Parallel()
	over(t, counts, func(b bench) {
		p, dies := b.process(1), b.process(2)
		b.lease(dies, distributed.Request{Instance: "b"})
		dies.l.cut(true)
		asks := distributed.Request{Instance: "a", NoWait: true}
		_, _, err := b.enter(p, asks)
		require.ErrorIs(t, err, distributed.ErrHeld)
		time.Sleep(simTTL + time.Second)
		require.NoError(t, b.lease(p, asks).Release(b.Context()))
	})
}

// Holders look often, for others may wait. They write seldom.
func TestHoldersLookOftenAndWriteSeldom(t *testing.T) {
	inBubble(t, func(b bench) {
		p := b.process(1)
		l := b.lease(p, distributed.Request{Instance: "a"})
		before, writes := p.l.count(), b.m.writes()
		time.Sleep(10 * simTTL)
		require.Greater(t, p.l.count()-before, 50)
		require.LessOrEqual(t, b.m.writes()-writes, 10*beatShare)
		require.NoError(t, l.Release(b.Context()))
	})
}

// Where the Store tells of changes, waiters are granted at once, and neither they nor holders ask often.
func TestWaitersAreTold(t *testing.T) {
	t.Parallel()
	over(t, tells, func(b bench) {
		p, other := b.process(1), b.process(2)
		l := b.lease(p, distributed.Request{Instance: "a"})
		time.Sleep(simTTL)
		place := b.place(other, distributed.Request{Instance: "b"})
		b.after("contended", l.Contended)
		time.Sleep(simTTL)
		before := p.l.count() + other.l.count()
		time.Sleep(10 * simTTL)
		require.LessOrEqual(t, p.l.count()+other.l.count()-before, 10*(beatShare+6)+10*beatShare*2, "beats, heartbeats, and news of beats")
		require.NoError(t, l.Release(b.Context()))
		start := time.Now()
		l = b.granted(place)
		require.Less(t, time.Since(start), longestPoll/4)
		require.NoError(t, l.Release(b.Context()))
	})
}

// A document that a watch brings may be older than what was read since: then the claim was queued again after it.
func TestAWatchThatLagsBehindGrantsNothing(t *testing.T) {
	t.Parallel()
	over(t, tells, func(b bench) {
		p, other := b.process(1), b.process(2)
		l := b.lease(p, distributed.Request{Instance: "a"})
		place := b.place(other, distributed.Request{Instance: "b"})
		before := b.m.get("k")
		stale, err := b.m.reader.decode(before)
		require.NoError(t, err)
		time.Sleep(time.Second) // it watches
		now := stale
		now.Queue = nil
		_, err = b.m.put("k", now.encode(), b.m.get("k").Version, time.Hour)
		require.NoError(t, err)
		b.after("queued again", func() bool { return b.m.fate(id(place)).again == 1 })
		time.Sleep(time.Second)
		stale.Owners, stale.Queue = stale.Queue, nil
		a := driver.AttemptOf[wire](place)
		a.Wire.news.Store(&Document{stale.encode(), before.Version})
		a.Poke()
		time.Sleep(time.Second)
		require.Empty(t, place.Granted())
		require.NoError(t, place.Leave(b.Context()))
		require.NoError(t, l.Release(b.Context()))
	})
}

// A queue that is too long for a document is refused, and says so.
func TestADocumentHasALargestSize(t *testing.T) {
	inBubble(t, func(b bench) {
		p := b.process(1)
		l := b.lease(p, distributed.Request{Instance: "a"})
		long, hundred := lock{}, slices.Repeat([]claim{{ID: "waits", Instance: "waits", TTL: simTTL}}, 100)
		for len(long.encode()) < maxDocument {
			long.Queue = append(long.Queue, hundred...)
		}
		now, err := b.m.read("k")
		require.NoError(t, err)
		now.Queue = long.Queue
		_, err = b.m.put("k", now.encode(), b.m.get("k").Version, now.keep())
		require.NoError(t, err)
		_, _, err = b.enter(b.process(2), distributed.Request{Instance: "b"})
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.ErrorContains(t, err, "want a document of at most 65536 bytes")
		require.NoError(t, l.Release(b.Context()))
	})
}

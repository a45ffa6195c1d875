package driver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// stub is a Driver whose answers a test gives. It grants what is asked for, and finds what it drops.
type stub struct {
	b    *Backend[string]
	lane *Lane[string] // of what is asked for from now on

	prepare func(a *Attempt[string])
	enter   func(a *Attempt[string], prev *Prev[string]) (Standing, error)
	look    func(some []*Attempt[string])
	drop    func(a *Attempt[string]) Outcome
	ended   func(a *Attempt[string])
	asked   *Attempt[string] // by the latest Enter

	mu      sync.Mutex
	dropped map[uint64]int // guarded by mu; how often, by the number of the attempt
}

// What an Enter is answered with, mostly.
var granted, queued = Standing{Kind: Granted, Next: Never}, Standing{Kind: Queued, Next: Never}

// stubSession lives for ever.
type stubSession struct{}

func (stubSession) Until() time.Time        { return time.Now().Add(time.Hour) }
func (stubSession) Healthy(time.Time) bool  { return true }
func (stubSession) Fault() error            { return nil }
func (stubSession) Patience() time.Duration { return time.Minute }

func (s *stub) Prepare(_ context.Context, a *Attempt[string]) error {
	a.Lane = s.lane
	if s.prepare != nil {
		s.prepare(a)
	}
	return nil
}

func (s *stub) Enter(_ context.Context, a *Attempt[string], prev *Prev[string]) (Standing, error) {
	s.asked = a
	if s.enter != nil {
		return s.enter(a, prev)
	}
	return says(granted)(a, prev)
}

// says answers an Enter that has removed the lease before.
func says(st Standing) func(*Attempt[string], *Prev[string]) (Standing, error) {
	return func(_ *Attempt[string], prev *Prev[string]) (Standing, error) {
		prev.Settle(Removed)
		st.Sent = time.Now()
		return st, nil
	}
}

func (s *stub) Look(_ context.Context, some []*Attempt[string]) {
	if s.look != nil {
		s.look(some)
	}
}

func (s *stub) Drop(_ context.Context, some []*Attempt[string]) {
	for _, a := range some {
		s.mu.Lock()
		s.dropped[a.Number]++
		s.mu.Unlock()
		found := Removed
		if s.drop != nil {
			found = s.drop(a)
		}
		a.Dropped(found)
	}
}

func (s *stub) drops(a *Attempt[string]) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped[a.Number]
}

func (s *stub) Refill(context.Context, *Attempt[string]) (Block, error) {
	return Block{}, errors.ErrUnsupported
}

func (s *stub) Share(context.Context, *Attempt[string]) (Standing, error) {
	return Standing{}, errors.ErrUnsupported
}

func (s *stub) Ended(a *Attempt[string]) {
	if s.ended != nil {
		s.ended(a)
	}
}

func (s *stub) Close() {
	s.lane.Flush(time.Second)
	s.lane.Shut()
}

// stubbed runs a test of one Backend above a stub.
func stubbed(t *testing.T, f func(t *testing.T, s *stub)) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{dropped: map[uint64]int{}}
		s.b = New(s, Settings{Name: "stub", LookMost: 1, DropMost: 2, Drops: 1})
		s.lane = s.b.NewLane(t.Context(), stubSession{})
		defer func() { require.NoError(t, s.b.Close()) }()
		f(t, s)
	})
}

// slowServer renews after a pause.
type slowServer struct {
	*stub
	pause time.Duration
}

func (slowServer) ClaimTime(*Attempt[string]) time.Duration { return 0 }

func (s slowServer) Renew(_ context.Context, due []*Attempt[string]) {
	time.Sleep(s.pause)
	for _, a := range due {
		a.Renewed(time.Now(), false)
	}
}

// While held leases are renewed late, who asks for a new one waits, and who has one before or does not wait does not.
func TestHeldLeasesGoBeforeNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slowServer{&stub{dropped: map[uint64]int{}}, dropTTL / 8}
		s.b = New(s, Settings{Name: "stub", LookMost: 1, DropMost: 2, Drops: 1, Pause: func(int) time.Duration { return time.Second }})
		s.lane = s.b.NewLane(t.Context(), nil)
		defer func() { require.NoError(t, s.b.Close()) }()
		l := s.lease(t, nil)
		time.Sleep(dropTTL/6 + dropTTL/8)
		synctest.Wait()
		begin := time.Now()
		s.lease(t, l)
		req := stubRequest(nil)
		req.NoWait = true
		_, _, err := s.b.Enter(t.Context(), req)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, _, err = s.b.Enter(ctx, stubRequest(nil))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Millisecond, time.Since(begin))
		s.lease(t, nil)
		require.Equal(t, dropTTL/12, time.Since(begin))
	})
}

func (s *stub) asks(t *testing.T, prev distributed.Lease) (distributed.Lease, distributed.Place, error) {
	t.Helper()
	return s.b.Enter(t.Context(), stubRequest(prev))
}

func stubRequest(prev distributed.Lease) distributed.Request {
	return distributed.Request{Key: "k", Instance: "a", TTL: dropTTL, Prev: prev}
}

func (s *stub) lease(t *testing.T, prev distributed.Lease) distributed.Lease {
	t.Helper()
	l, _, err := s.asks(t, prev)
	require.NoError(t, err)
	return l
}

// place asks, and is queued.
func (s *stub) place(t *testing.T) (distributed.Place, *Attempt[string]) {
	t.Helper()
	_, p, err := s.asks(t, nil)
	require.NoError(t, err)
	return p, AttemptOf[string](p)
}

// isLeft asks, and its caller goes after d.
func (s *stub) isLeft(t *testing.T, d time.Duration, prev distributed.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	start := time.Now()
	_, _, err := s.b.Enter(ctx, stubRequest(prev))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.Equal(t, d, time.Since(start))
}

// A session that nobody uses may end at any moment. One of which something is to be removed is used until that is done: otherwise a
// release would be answered with the end of the session, though the lease was held.
func TestALaneIsUsedUntilNothingIsLeft(t *testing.T) {
	for how, ends := range map[string]func(t *testing.T, s *stub){
		"Release": func(t *testing.T, s *stub) { require.NoError(t, s.lease(t, nil).Release(t.Context())) },
		"StartRelease": func(t *testing.T, s *stub) {
			l := s.lease(t, nil)
			require.False(t, l.StartRelease())
			require.NoError(t, l.Release(t.Context()))
		},
		"Leave": func(t *testing.T, s *stub) {
			s.enter = says(queued)
			p, _ := s.place(t)
			require.NoError(t, p.Leave(t.Context()))
		},
		"Prev": func(t *testing.T, s *stub) {
			l := s.lease(t, nil)
			second := s.lease(t, l)
			require.NoError(t, l.Release(t.Context()))
			require.NoError(t, second.Release(t.Context()))
		},
		"an Enter that has failed": func(t *testing.T, s *stub) {
			s.enter = func(*Attempt[string], *Prev[string]) (Standing, error) {
				return Standing{}, distributed.ErrUnavailable
			}
			_, _, err := s.asks(t, nil)
			require.Error(t, err)
		},
		"loss": func(t *testing.T, s *stub) { AttemptOf[string](s.lease(t, nil)).lease.End() },
	} {
		t.Run(how, func(t *testing.T) {
			stubbed(t, func(t *testing.T, s *stub) {
				s.ended = func(a *Attempt[string]) { require.False(t, a.Lane.shutUnused()) }
				ends(t, s)
				synctest.Wait()
				require.True(t, s.lane.Unused(), "nothing is left")
			})
		})
	}
}

// A request whose session ends as unused before it is known there has sent nothing: it asks for another one, however often that happens.
func TestARequestFindsASessionThatStays(t *testing.T) {
	stubbed(t, func(t *testing.T, s *stub) {
		shut := 0
		s.prepare = func(a *Attempt[string]) {
			if shut++; shut < 5 {
				require.True(t, a.Lane.shutUnused())
				a.Lane.Shut()
				s.lane = s.b.NewLane(t.Context(), stubSession{})
			}
		}
		require.NoError(t, s.lease(t, nil).Release(t.Context()))
		require.Equal(t, 5, shut)
	})
}

// What is said of a request before its own answer is there is newer, and not forgotten: a lease that has gone ends, a place is lost, and what
// a message is about is looked at.
func TestGoneBeforeTheAnswerToEnter(t *testing.T) {
	for name, one := range map[string]struct {
		before   func(a *Attempt[string])
		answer   Standing
		gone     bool
		looks    int
		contends bool
	}{
		"gone, then a place":             {func(a *Attempt[string]) { a.Gone() }, queued, true, 0, false},
		"gone, then a grant":             {func(a *Attempt[string]) { a.Gone() }, granted, true, 0, false},
		"a grant, gone, then a place":    {func(a *Attempt[string]) { a.Stands(granted); a.Gone() }, queued, true, 0, false},
		"a message, then a grant":        {func(a *Attempt[string]) { a.Poke() }, granted, false, 1, true},
		"a message, a question, a grant": {func(a *Attempt[string]) { a.Poke(); a.Asks() }, granted, false, 0, false},
		"a grant, a message, a place":    {func(a *Attempt[string]) { a.Stands(granted); a.Poke() }, queued, false, 1, true},
		"a message, a grant and place":   {func(a *Attempt[string]) { a.Poke(); a.Stands(granted) }, queued, false, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			stubbed(t, func(t *testing.T, s *stub) {
				s.enter = func(a *Attempt[string], _ *Prev[string]) (Standing, error) {
					one.answer.Sent = time.Now()
					time.Sleep(time.Millisecond)
					one.before(a)
					return one.answer, nil
				}
				looks := 0
				s.look = func(some []*Attempt[string]) {
					if looks++; one.gone {
						some[0].Gone()
					} else {
						some[0].Stands(Standing{Kind: Granted, Next: Never, Contended: true})
					}
				}
				l, p, err := s.asks(t, nil)
				require.NoError(t, err)
				synctest.Wait()
				if l == nil {
					l = <-p.Granted() // nil if the place is lost
				}
				require.Equal(t, one.looks, looks)
				require.Equal(t, one.gone, l == nil || !l.Healthy())
				require.True(t, !one.gone || p == nil || l == nil, "a lease that has gone is not delivered")
				if !one.gone {
					require.Equal(t, one.contends, l.Contended())
				}
			})
		})
	}
}

// A server that does not answer holds up the looks of its own lane alone.
func TestALaneThatHangsHoldsUpNoOther(t *testing.T) {
	stubbed(t, func(t *testing.T, s *stub) {
		hung, answers := s.lane, make(chan struct{})
		s.enter = says(queued)
		var looked []uint64
		s.look = func(some []*Attempt[string]) {
			if some[0].Lane == hung {
				<-answers
			} else {
				looked = append(looked, some[0].Number)
			}
		}
		for range 2 * mostLooking {
			_, a := s.place(t)
			a.Poke()
		}
		synctest.Wait()
		s.lane = s.b.NewLane(t.Context(), stubSession{})
		_, a := s.place(t)
		a.Poke()
		synctest.Wait()
		require.Equal(t, []uint64{a.Number}, looked)
		close(answers)
		hung.Over()
	})
}

// A Drop that waits in line is taken over by an Enter. If that has removed the lease, and its answer is lost, the one Drop that follows
// finds nothing, which is no loss.
func TestAReleaseThatWasTakenOverIsNotSentTwice(t *testing.T) {
	stubbed(t, func(t *testing.T, s *stub) {
		answers := make(chan struct{})
		first := AttemptOf[string](s.lease(t, nil))
		s.drop = func(a *Attempt[string]) Outcome {
			if a == first {
				<-answers
				return Removed
			}
			return Missing
		}
		l := s.lease(t, nil)
		require.False(t, first.lease.StartRelease(), "its Drop is under way")
		synctest.Wait()
		require.False(t, l.StartRelease(), "this one waits in line")
		s.enter = func(_ *Attempt[string], prev *Prev[string]) (Standing, error) {
			require.Same(t, AttemptOf[string](l), prev.Mine())
			return Standing{}, distributed.ErrUnavailable
		}
		_, _, err := s.asks(t, l)
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		close(answers)
		require.NoError(t, l.Release(t.Context()))
		require.Equal(t, 1, s.drops(AttemptOf[string](l)))
	})
}

// Of a Drop and an Enter that are under way for one lease the service says which came first: a Drop that has found nothing came second,
// and the Enter says what became of the lease.
func TestADropAfterTheEnterIsNotTheAnswer(t *testing.T) {
	stubbed(t, func(t *testing.T, s *stub) {
		s.b.set.Twice = true
		answers := make(chan struct{})
		s.drop = func(*Attempt[string]) Outcome {
			<-answers
			return Missing
		}
		l := s.lease(t, nil)
		require.False(t, l.StartRelease())
		synctest.Wait()
		s.enter = func(_ *Attempt[string], prev *Prev[string]) (Standing, error) {
			close(answers)
			synctest.Wait()
			prev.Settle(Removed)
			return Standing{Kind: Refused}, nil
		}
		_, _, err := s.asks(t, l)
		require.ErrorIs(t, err, distributed.ErrHeld)
		require.NoError(t, l.Release(t.Context()))
	})
}

// Close leaves places, and releases a grant that nobody has read; one that is held stays.
func TestCloseEndsWhatIsNotHeld(t *testing.T) {
	stubbed(t, func(t *testing.T, s *stub) {
		held := s.lease(t, nil)
		s.enter = says(queued)
		waiting, _ := s.place(t)
		unread, a := s.place(t)
		a.Stands(Standing{Kind: Granted, Sent: time.Now(), Next: Never})
		require.Len(t, unread.Granted(), 1)
		require.NoError(t, s.b.Close())
		for _, p := range []distributed.Place{waiting, unread} {
			_, granted := <-p.Granted()
			require.False(t, granted)
			require.Equal(t, 1, s.drops(AttemptOf[string](p)))
		}
		require.True(t, held.Until().After(time.Now()))
		require.Zero(t, s.drops(AttemptOf[string](held)))
		require.ErrorIs(t, held.Release(t.Context()), distributed.ErrClosed)
	})
}

// Close waits for an Enter that is under way, for a while, and drops what it has left: leases that are held keep the session from
// ending, and it would hold up others as long.
func TestCloseDropsWhatAnEnterLeaves(t *testing.T) {
	quiet(t, func(t *testing.T, c *simClient, enter func(string) (distributed.Lease, distributed.Place)) {
		l, _ := enter("held")
		require.False(t, distributed.Over(time.Now(), l.Until()))
		answered := make(chan error, 1)
		go func() {
			_, _, err := c.b.Enter(t.Context(), distributed.Request{Key: "k", Instance: "late", TTL: dropTTL})
			answered <- err
		}()
		var there *simEntry
		for there == nil {
			time.Sleep(time.Millisecond)
			c.v.do(func() {
				if q := c.v.queues["k"]; len(q) > 0 {
					there = q[0]
				}
			})
		}
		require.Empty(t, answered)
		require.NoError(t, c.b.Close())
		require.ErrorIs(t, <-answered, distributed.ErrClosed)
		c.v.do(func() { require.True(t, there.gone) })
	})
}

// Who was refused may have said so before the holder knows of its lease, and is not forgotten when the lease is there.
func TestARefusalThatComesBeforeTheGrantIsKnown(t *testing.T) {
	stubbed(t, func(t *testing.T, s *stub) {
		l := s.lease(t, nil)
		require.False(t, l.Wanted())
		AttemptOf[string](l).Wanted()
		require.True(t, l.Wanted())
		s.enter = func(a *Attempt[string], _ *Prev[string]) (Standing, error) {
			a.Wanted()
			return Standing{Kind: Granted, Sent: time.Now(), Next: Never}, nil
		}
		require.True(t, s.lease(t, nil).Wanted())
		s.enter = says(Standing{Kind: Granted, Next: Never, Wanted: true})
		require.True(t, s.lease(t, nil).Wanted())
		s.enter = says(Standing{Holder: "b"})
		for _, told := range []bool{false, true} {
			s.b.set.Tells = told
			_, _, err := s.asks(t, nil)
			held, _ := errors.AsType[*distributed.HeldError](err)
			require.Equal(t, &distributed.HeldError{Holder: "b", Told: told}, held)
		}
	})
}

// A message about waiters is newer than the answer to a request that was sent before it, but hides no waiter that the answer knows of.
func TestAMessageHidesNoWaiterFromAnAnswer(t *testing.T) {
	stubbed(t, func(t *testing.T, s *stub) {
		l := s.lease(t, nil)
		a, sent := AttemptOf[string](l), time.Now()
		for _, answer := range []func(waits bool){
			func(waits bool) { a.Stands(Standing{Kind: Granted, Sent: sent, Contended: waits, Next: Never}) },
			func(waits bool) { a.Renewed(sent, waits) },
		} {
			time.Sleep(time.Millisecond)
			a.Noticed(true)
			answer(false)
			require.True(t, l.Contended(), "the message is newer")
			a.Noticed(false)
			answer(true)
			require.True(t, l.Contended())
		}
	})
}

// However many messages ask for a look, they put off none.
func TestMessagesPutNoLookOff(t *testing.T) {
	stubbed(t, func(t *testing.T, s *stub) {
		s.enter = says(Standing{Kind: Queued, Next: 100 * time.Millisecond})
		start, looked := time.Now(), time.Duration(0)
		s.look = func(some []*Attempt[string]) {
			looked = time.Since(start)
			some[0].LookIn(time.Hour)
		}
		_, a := s.place(t)
		for range 5 {
			time.Sleep(10 * time.Millisecond)
			a.LookSooner(45 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 55*time.Millisecond, looked)
		a.LookSooner(0)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, 1050*time.Millisecond, looked)
	})
}

// An Enter knows the lease before it also when that was released: fences of its own grant come after it.
func TestAnEnterKnowsTheLeaseBefore(t *testing.T) {
	stubbed(t, func(t *testing.T, s *stub) {
		l := s.lease(t, nil)
		require.NoError(t, l.Release(t.Context()))
		s.enter = func(_ *Attempt[string], prev *Prev[string]) (Standing, error) {
			require.Same(t, AttemptOf[string](l), prev.Attempt())
			require.Nil(t, prev.Mine())
			require.NoError(t, prev.Wait(t.Context()))
			return Standing{Kind: Granted, Sent: time.Now(), Next: Never}, nil
		}
		s.lease(t, l)
	})
}

// Whoever waits for a release that is not answered learns why.
func TestAReleaseThatIsNotAnsweredSaysWhy(t *testing.T) {
	stubbed(t, func(t *testing.T, s *stub) {
		l := s.lease(t, nil)
		broken := errors.New("the connection is broken")
		s.drop = func(a *Attempt[string]) Outcome { a.Unanswered(broken); return Unknown }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.Release(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		require.ErrorIs(t, err, broken)
	})
}

// renewedStub is a stub without a session, whose renewals a test answers.
type renewedStub struct {
	*stub
	renew func(a *Attempt[string])
	claim time.Duration // how long a claim may take
}

func (s *renewedStub) Renew(_ context.Context, due []*Attempt[string]) {
	for _, a := range due {
		s.renew(a)
	}
}

func (s *renewedStub) ClaimTime(*Attempt[string]) time.Duration { return s.claim }

// renewedStubbed runs a test of one Backend above a stub without a session, which answers renewals.
func renewedStubbed(t *testing.T, f func(t *testing.T, s *renewedStub)) {
	synctest.Test(t, func(t *testing.T) {
		s := &renewedStub{stub: &stub{dropped: map[uint64]int{}}, renew: func(a *Attempt[string]) { a.Renewed(time.Now(), false) }}
		pause := func(int) time.Duration { return 10 * time.Millisecond }
		s.b = New(s, Settings{Name: "stub", LookMost: 1, DropMost: 2, Drops: 1, Pause: pause})
		s.lane = s.b.NewLane(t.Context(), nil)
		defer func() { require.NoError(t, s.b.Close()) }()
		f(t, s)
	})
}

// A grant of which little is left is claimed before anybody gets it. If that is not answered it may have been carried out, for a TTL: the
// place is lost, and what it may have is dropped.
func TestAClaimThatIsNotAnsweredIsDropped(t *testing.T) {
	renewedStubbed(t, func(t *testing.T, s *renewedStub) {
		s.renew, s.claim, s.enter = func(*Attempt[string]) {}, dropTTL, says(queued)
		p, a := s.place(t)
		a.Stands(granted)
		time.Sleep(dropTTL / 2)
		require.Empty(t, p.Granted(), "it is tried again")
		_, ok := <-p.Granted()
		require.False(t, ok)
		time.Sleep(time.Second)
		require.Equal(t, 1, s.drops(a))
	})
}

// A driver that renews its leases may look at them, too, and says of a grant when to do either first.
func TestAGrantIsLookedAtAndRenewedWhenItsDriverSays(t *testing.T) {
	renewedStubbed(t, func(t *testing.T, s *renewedStub) {
		start, looked, renewed := time.Now(), time.Duration(0), time.Duration(0)
		s.look = func(some []*Attempt[string]) { looked = time.Since(start); some[0].LookIn(time.Hour) }
		s.renew = func(a *Attempt[string]) {
			if renewed == 0 {
				renewed = time.Since(start)
			}
			a.Renewed(time.Now(), false)
		}
		s.enter = says(Standing{Kind: Granted, Next: 20 * time.Millisecond, RenewIn: 30 * time.Millisecond})
		l := s.lease(t, nil)
		time.Sleep(dropTTL / 2)
		synctest.Wait()
		require.Equal(t, 20*time.Millisecond, looked)
		require.GreaterOrEqual(t, renewed, 30*time.Millisecond)
		require.Less(t, renewed, dropTTL/6)
		require.NoError(t, l.Release(t.Context()))
	})
}

// A grant can be pushed before the answer that the request has a place. It lasts from when the request was made.
func TestAGrantCanBeQuickerThanTheAnswer(t *testing.T) {
	renewedStubbed(t, func(t *testing.T, s *renewedStub) {
		start := time.Now()
		s.enter = func(a *Attempt[string], prev *Prev[string]) (Standing, error) {
			time.Sleep(time.Millisecond)
			a.Stands(granted)
			time.Sleep(time.Millisecond)
			return says(queued)(a, prev)
		}
		p, _ := s.place(t)
		require.Len(t, p.Granted(), 1)
		l := <-p.Granted()
		require.Equal(t, distributed.Validity(start, distributed.ClaimWindow(dropTTL)), l.Until())
		require.NoError(t, l.Release(t.Context()))
	})
}

// A message can be so late that the lock was granted to others since, and to the attempt again, with later fences. So the service is asked,
// whether the message comes before the answer to Enter or later.
func TestAMessageThatComesLateIsNoGrant(t *testing.T) {
	for _, early := range []bool{true, false} {
		renewedStubbed(t, func(t *testing.T, s *renewedStub) {
			late, again := granted, granted
			late.Pushed, late.Fences = true, Block{1, 1000}
			again.Fences = Block{2001, 1000}
			s.enter = func(a *Attempt[string], prev *Prev[string]) (Standing, error) {
				time.Sleep(distributed.ClaimWindow(dropTTL))
				if early {
					a.Stands(late)
				}
				return says(queued)(a, prev)
			}
			s.look = func(some []*Attempt[string]) {
				again.Sent = time.Now()
				some[0].Stands(again)
			}
			p, a := s.place(t)
			if !early {
				time.Sleep(distributed.ClaimWindow(dropTTL))
				a.Stands(late)
			}
			l := <-p.Granted()
			fence, ok := l.NextFence()
			require.True(t, ok)
			require.Equal(t, uint64(2001), fence)
			require.NoError(t, l.Release(t.Context()))
		})
	}
}

// apartStubbed is renewedStubbed with requests that go on when their callers have gone, and looks that share one.
func apartStubbed(t *testing.T, f func(t *testing.T, s *renewedStub)) {
	renewedStubbed(t, func(t *testing.T, s *renewedStub) {
		s.b.set.Apart, s.b.set.Looks, s.b.set.LookMost = func(enter func()) bool { return s.b.Go(enter) }, 1, 3
		f(t, s)
	})
}

// A caller that goes leaves its request alone. What that brings is dropped when it is answered, and not before: a Drop that came first
// would find nothing. Until then the lease before is the request's.
func TestARequestGoesOnWithoutItsCaller(t *testing.T) {
	for _, kind := range []Kind{Granted, Queued, Refused} {
		apartStubbed(t, func(t *testing.T, s *renewedStub) {
			before, answers := s.lease(t, nil), make(chan struct{})
			s.enter = func(a *Attempt[string], prev *Prev[string]) (Standing, error) {
				<-answers
				return says(Standing{Kind: kind, Next: Never})(a, prev)
			}
			s.isLeft(t, time.Second, before)
			synctest.Wait()
			require.Zero(t, s.drops(s.asked))
			close(answers)
			synctest.Wait()
			require.Equal(t, map[Kind]int{Granted: 1, Queued: 1}[kind], s.drops(s.asked))
			require.NoError(t, before.Release(t.Context()))
			require.Zero(t, s.drops(AttemptOf[string](before)))
			require.True(t, s.lane.Unused())
		})
	}
}

// A request that waits for the release of the lease before takes nothing that others wait for, and its caller can go.
func TestARequestThatWaitsForADropHasNotBegun(t *testing.T) {
	apartStubbed(t, func(t *testing.T, s *renewedStub) {
		before, answers, prepared := s.lease(t, nil), make(chan struct{}), 0
		s.drop = func(*Attempt[string]) Outcome { <-answers; return Removed }
		s.prepare = func(*Attempt[string]) { prepared++ }
		require.False(t, before.StartRelease())
		synctest.Wait()
		s.isLeft(t, time.Second, before)
		require.Zero(t, prepared)
		time.AfterFunc(dropTTL/4, func() { close(answers) })
		l := s.lease(t, before)
		require.Equal(t, 1, prepared)
		require.NoError(t, l.Release(t.Context()))
	})
}

// A caller without a deadline goes when the Driver says that its request has had its time, and not if that is answered.
func TestARequestThatIsOverdueIsLeft(t *testing.T) {
	apartStubbed(t, func(t *testing.T, s *renewedStub) {
		for _, late := range []bool{true, false} {
			answers := make(chan struct{})
			s.enter = func(a *Attempt[string], prev *Prev[string]) (Standing, error) {
				if late {
					time.AfterFunc(time.Second, a.Overdue)
					<-answers
				}
				time.AfterFunc(0, a.Overdue)
				return says(granted)(a, prev)
			}
			start := time.Now()
			l, _, err := s.asks(t, nil)
			close(answers)
			synctest.Wait()
			if late {
				require.ErrorIs(t, err, distributed.ErrUnavailable)
				require.Equal(t, time.Second, time.Since(start))
				require.Equal(t, 1, s.drops(s.asked), "what it has brought")
				continue
			}
			require.NoError(t, err)
			require.NoError(t, l.Release(t.Context()))
		}
	})
}

// A caller that goes when the answer comes either gets it, or what it brings is dropped.
func TestARequestIsAnsweredWhenItsCallerGoes(t *testing.T) {
	apartStubbed(t, func(t *testing.T, s *renewedStub) {
		for range 200 {
			ctx, cancel := context.WithCancel(t.Context())
			s.enter = func(a *Attempt[string], prev *Prev[string]) (Standing, error) {
				cancel()
				return says(granted)(a, prev)
			}
			l, _, err := s.b.Enter(ctx, stubRequest(nil))
			synctest.Wait()
			require.Equal(t, err != nil, s.drops(s.asked) == 1)
			if err == nil {
				require.NoError(t, l.Release(t.Context()))
			}
		}
	})
}

// Close waits for a request whose caller has gone, and drops what it brings.
func TestCloseWaitsForARequestWithoutItsCaller(t *testing.T) {
	apartStubbed(t, func(t *testing.T, s *renewedStub) {
		s.enter = func(a *Attempt[string], prev *Prev[string]) (Standing, error) {
			time.Sleep(500 * time.Millisecond)
			return says(granted)(a, prev)
		}
		s.isLeft(t, time.Millisecond, nil)
		require.NoError(t, s.b.Close())
		require.Equal(t, 1, s.drops(s.asked))
	})
}

// What is to be looked at while a Look is under way shares the next one, as far as it goes.
func TestMessagesShareALook(t *testing.T) {
	apartStubbed(t, func(t *testing.T, s *renewedStub) {
		s.enter = says(queued)
		var looks []int
		answers := make(chan struct{})
		s.look = func(some []*Attempt[string]) {
			looks = append(looks, len(some)) // one at a time
			<-answers
		}
		for range 6 {
			_, a := s.place(t)
			a.Poke()
			synctest.Wait()
		}
		close(answers)
		synctest.Wait()
		require.Equal(t, []int{1, 3, 2}, looks)
	})
}

// A release whose caller has no time goes on in the background at once, and what was drawn of its block is known.
func TestAReleaseThatHasNoTimeIsSentAtOnce(t *testing.T) {
	renewedStubbed(t, func(t *testing.T, s *renewedStub) {
		s.b.set.DropsHere = 1
		s.enter = says(Standing{Kind: Granted, Fences: Block{First: 100, Count: 10}, Next: Never})
		l := s.lease(t, nil)
		_, ok := l.NextFence()
		require.True(t, ok)
		here := false
		s.drop = func(a *Attempt[string]) Outcome {
			s.lane.mu.Lock()
			defer s.lane.mu.Unlock()
			here = s.lane.here > 0
			drawn, last := a.Drawn()
			require.Equal(t, []uint64{100, 109}, []uint64{drawn, last})
			return Removed
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = l.Release(ctx)
		synctest.Wait()
		require.Equal(t, 1, s.drops(AttemptOf[string](l)))
		require.False(t, here)
	})
}

// What is refused is dropped again, but Close does not wait for it.
func TestCloseDoesNotWaitForARefusedDrop(t *testing.T) {
	renewedStubbed(t, func(t *testing.T, s *renewedStub) {
		s.drop = func(a *Attempt[string]) Outcome { a.DropRefused(errors.New("no right to it")); return Unknown }
		l := s.lease(t, nil)
		require.False(t, l.StartRelease())
		time.Sleep(35 * time.Millisecond)
		require.GreaterOrEqual(t, s.drops(AttemptOf[string](l)), 3)
		start := time.Now()
		require.NoError(t, s.b.Close())
		require.Less(t, time.Since(start), 50*time.Millisecond)
	})
}

// The answer to a Drop is waited for also if the service has said nothing for so long that it may have forgotten the place.
func TestADropIsWaitedForAfterASilence(t *testing.T) {
	renewedStubbed(t, func(t *testing.T, s *renewedStub) {
		s.enter = says(queued)
		s.drop = func(*Attempt[string]) Outcome { time.Sleep(time.Millisecond); return Removed }
		p, _ := s.place(t)
		time.Sleep(2 * dropTTL)
		require.NoError(t, p.Leave(t.Context()))
	})
}

// Renewals that were carried out and not answered keep a lease at the service for longer than it lasts here. So its Drop is repeated for as
// long: a cut of 100 ms at the release does not leave the lock taken.
func TestADropGoesOnWhileTheServiceMayHaveTheLease(t *testing.T) {
	renewedStubbed(t, func(t *testing.T, s *renewedStub) {
		var answers, cut atomic.Bool
		answers.Store(true)
		reached := 0 // Drops come one after the other, and the last one before the end
		s.renew = func(a *Attempt[string]) {
			if answers.Load() {
				a.Renewed(time.Now(), false)
			}
		}
		s.drop = func(*Attempt[string]) Outcome {
			if cut.Load() {
				return Unknown
			}
			reached++
			return Removed
		}
		l := s.lease(t, nil)
		time.Sleep(dropTTL / 2)
		answers.Store(false)
		time.Sleep(time.Until(l.Until()) - 50*time.Millisecond)
		cut.Store(true)
		l.StartRelease()
		time.Sleep(100 * time.Millisecond)
		cut.Store(false)
		time.Sleep(dropTTL / 4)
		synctest.Wait()
		require.Equal(t, 1, reached)
	})
}

// What a message says that comes during a look is newer than the grant which that look finds.
func TestAMessageDuringTheLookThatFindsTheGrant(t *testing.T) {
	stubbed(t, func(t *testing.T, s *stub) {
		s.enter = says(queued)
		looks := 0
		s.look = func(some []*Attempt[string]) {
			if looks++; looks == 1 {
				some[0].Poke()
			}
			some[0].Stands(Standing{Kind: Granted, Sent: time.Now(), Next: Never, Contended: looks > 1})
		}
		p, a := s.place(t)
		a.Poke()
		l := <-p.Granted()
		synctest.Wait()
		require.Equal(t, 2, looks)
		require.True(t, l.Contended())
	})
}

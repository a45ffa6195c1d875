package keepalive_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

func TestAbandoned(t *testing.T) {
	serving(t, renewed, func(t *testing.T, s *service) {
		l, w := s.watched()
		l.Abandon()
		l.Abandon()
		assert.False(t, l.Healthy())
		assert.False(t, isLost(l))
		sleep(time.Until(l.Until()))
		assert.True(t, isLost(l))
		assert.Len(t, w.lost, 1)
		assert.Empty(t, s.times(l))
		assert.False(t, l.Finish())
	})
}

func TestAbandonedCanBeReleased(t *testing.T) {
	serving(t, renewed, func(t *testing.T, s *service) {
		l := s.grant()
		l.Abandon()
		assert.True(t, l.Finish())
		time.Sleep(ttl)
		assert.False(t, isLost(l))
	})
}

func TestFinishIsSilent(t *testing.T) {
	serving(t, renewed, func(t *testing.T, s *service) {
		l, w := s.watched()
		require.True(t, l.Finish())
		assert.True(t, l.Finish(), "again")
		l.Abandon()
		assert.False(t, l.End(), "it is not held any more")
		l.SetContended(true)
		assert.True(t, l.Contended())
		sleep(2 * ttl)
		assert.False(t, isLost(l))
		assert.Empty(t, w.lost)
		assert.Empty(t, w.contended)
		l.Released(nil)
		assert.Equal(t, []error{nil}, w.released)
	})
}

func TestFinishOfALeaseThatIsOver(t *testing.T) {
	serving(t, unknown, func(t *testing.T, s *service) {
		l, w := new(lease), new(witness)
		s.Keep(&l.Lease, l, ttl, time.Now(), time.Now().Add(time.Second))
		l.Watch(w, l)
		assert.False(t, l.Finish(), "before any timer has fired")
		assert.True(t, isLost(l))
		synctest.Wait()
		assert.Len(t, w.lost, 1)
	})
}

// Exactly one of release, loss and clock wins (rule K3), and methods and Watcher report the same winner.
func TestFinishRacesEnd(t *testing.T) {
	s := serve(renewed)
	defer s.Close()
	for range 2000 {
		l, w := s.watched()
		var finished, ended atomic.Bool
		var all sync.WaitGroup
		all.Go(func() { finished.Store(l.Finish()) })
		all.Go(func() { ended.Store(l.End()) })
		all.Go(func() { l.SetContended(true) })
		all.Wait()
		require.NotEqual(t, finished.Load(), ended.Load())
		require.Equal(t, ended.Load(), isLost(l))
		require.Equal(t, ended.Load(), len(w.lost) == 1)
	}
}

// The watcher is notified once, whether it or the event comes first.
func TestWatchRacesNotices(t *testing.T) {
	s := serve(renewed)
	defer s.Close()
	for range 2000 {
		l, w := s.grant(), new(witness)
		var all sync.WaitGroup
		all.Go(func() { l.Watch(w, l) })
		all.Go(func() { l.SetContended(true) })
		all.Go(func() { l.SetContended(true) })
		all.Go(func() { l.End() })
		all.Wait()
		require.Len(t, w.contended, 1)
		require.Len(t, w.lost, 1)
	}
}

func TestWatchTellsWhatWas(t *testing.T) {
	s, w := serve(renewed), new(witness)
	defer s.Close()
	l := s.grant()
	l.SetContended(true)
	l.End()
	l.Watch(w, l)
	assert.Equal(t, []distributed.Lease{l}, w.contended)
	assert.Equal(t, []distributed.Lease{l}, w.lost)
}

// A wish may go and come back; the watcher is notified of each change, and of none that it knows.
func TestContendedIsTakenBack(t *testing.T) {
	s, w := serve(renewed), new(witness)
	defer s.Close()
	l := s.grant()
	l.SetContended(true)
	l.SetContended(false)
	l.Watch(w, l)
	assert.Empty(t, w.contended)
	for i, waits := range []bool{true, true, false, false, true} {
		l.SetContended(waits)
		assert.Equal(t, waits, l.Contended(), "call %d", i)
	}
	assert.Len(t, w.contended, 3)
	l.Finish()
	l.SetContended(false)
	assert.Len(t, w.contended, 3, "a release has begun")
}

// That another instance was refused stays so; the watcher is notified of it once.
func TestWantedStays(t *testing.T) {
	s, w := serve(renewed), new(witness)
	defer s.Close()
	l, later := s.grant(), s.grant()
	require.True(t, l.Want())
	require.False(t, l.Want())
	l.NotifyContended() // nobody watches it yet
	l.Watch(w, l)
	assert.Len(t, w.contended, 1)
	l.NotifyContended()
	assert.Len(t, w.contended, 1)
	l.SetContended(true)
	l.SetContended(false)
	assert.Len(t, w.contended, 3)
	assert.True(t, l.Wanted())
	assert.False(t, l.Contended())
	later.Watch(w, later)
	later.Finish()
	later.Want()
	later.NotifyContended()
	assert.Len(t, w.contended, 3, "a release has begun")
}

func TestTimesFitTogether(t *testing.T) {
	for _, ttl := range []time.Duration{distributed.MinTTL, time.Second, time.Minute} {
		window := distributed.ClaimWindow(ttl)
		assert.Greater(t, distributed.Validity(time.Time{}, window).Sub(time.Time{}), window/3, "the claim comes in time")
		assert.Less(t, distributed.RenewInterval(ttl)+distributed.HeartbeatInterval(ttl), ttl-distributed.Drift(ttl),
			"a late renewal is noticed before the lease expires")
		assert.Less(t, distributed.HeartbeatInterval(ttl), window, "a heartbeat finds a lost grant within its window")
	}
}

// A renewal that is under way when the lease is abandoned or released is the last one. Its answer extends an abandoned lease, and is not
// reported once a release has begun.
func TestRenewalUnderWayIsTheLast(t *testing.T) {
	for name, outcome := range map[string][]error{"answered": {nil}, "unanswered": {distributed.ErrUnavailable}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answered := outcome[0] == nil
				s := serve(func(_ context.Context, l *lease) {
					until := distributed.Validity(time.Now(), ttl)
					time.Sleep(ttl / 20)
					if answered {
						l.Renewed(until)
					}
				})
				defer s.Close()
				l, released, w, none := s.grant(), s.grant(), new(witness), new(witness)
				l.Watch(w, l)
				released.Watch(none, released)
				window := l.Until()
				time.Sleep(ttl/6 + ttl/40)
				l.Abandon()
				require.True(t, released.Finish())
				time.Sleep(ttl / 10)
				until := l.Until()
				assert.Equal(t, answered, until.After(window))
				time.Sleep(time.Until(until) - 1)
				assert.False(t, isLost(l))
				sleep(time.Nanosecond)
				assert.True(t, isLost(l))
				assert.Len(t, s.times(l), 1)
				require.Len(t, w.renewed, 1)
				assert.ErrorIs(t, w.renewed[0], outcome[0])
				assert.Empty(t, none.renewed)
			})
		})
	}
}

// A lease that is lost says why the latest renewal has failed, and when. It says nothing if that was answered, or none was due.
func TestLossSaysWhy(t *testing.T) {
	refused := distributed.Unavailable("service: renew", errors.New("no such table"), distributed.ErrRefused)
	fails := func(_ context.Context, l *lease) { time.Sleep(ttl / 100); l.Failed(refused) }
	never := make(chan struct{})
	first := distributed.ClaimWindow(ttl) / 3
	for name, c := range map[string]struct {
		answer func(context.Context, *lease)
		lose   func(*lease)
		why    string
		at     time.Duration // from the grant; 0: the time of the last try
	}{
		"refused":           {answer: fails, why: "service: renew: refused: no such table"},
		"silent":            {answer: func(context.Context, *lease) { <-never }, why: "no answer", at: first},
		"unanswered":        {answer: unknown, why: "no answer"},
		"ended, once tried": {answer: fails, lose: func(l *lease) { time.Sleep(first + ttl/50); l.End() }, why: "no such table", at: first + ttl/100},
		"ended":             {answer: renewed, lose: func(l *lease) { time.Sleep(ttl); l.End() }},
		"abandoned":         {answer: fails, lose: (*lease).Abandon},
		"answered at last": {lose: func(l *lease) { time.Sleep(first * 2); l.End() }, answer: func(_ context.Context, l *lease) {
			if l.LostError() == nil {
				l.Failed(refused)
			} else {
				l.Renewed(distributed.Validity(time.Now(), ttl))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				never = make(chan struct{})
				s, began := serve(c.answer), time.Now()
				defer s.Close()
				defer close(never)
				l := s.grant()
				require.Nil(t, l.LostError())
				if c.lose != nil {
					c.lose(l)
				}
				<-l.Lost()
				err := distributed.LossOf(l)
				require.ErrorIs(t, err, distributed.ErrLeaseLost)
				require.NotErrorIs(t, err, distributed.ErrUnavailable, "its function has run")
				why, known := errors.AsType[*distributed.LostError](err)
				require.Equal(t, c.why != "", known, "%v", err)
				if known {
					require.ErrorContains(t, why, c.why)
					require.ErrorContains(t, why, why.At.UTC().Format("15:04:05.000"))
				}
				if c.at != 0 {
					require.WithinDuration(t, began.Add(c.at), why.At, ttl/50)
				}
			})
		})
	}
}

// A renewal that was due was not sent, for the process was busy, or stood still: the lease says so.
func TestRenewalThatWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		s := serve(func(context.Context, *lease) { <-never })
		defer s.Close()
		defer close(never)
		for range 4 { // as many calls as a Keeper makes at a time
			s.grant()
			time.Sleep(ttl / 50)
		}
		l := s.grant()
		due := time.Now().Add(distributed.ClaimWindow(ttl) / 3)
		<-l.Lost()
		require.NotNil(t, l.LostError())
		require.ErrorContains(t, l.LostError(), "not sent")
		require.WithinDuration(t, due, l.LostError().At, ttl/50)
	})
}

// Answers that come late: to a renewal that was sent before the lease was abandoned; to an older one; and when the lease is lost, for nobody
// holds it by then.
func TestLateAnswers(t *testing.T) {
	serving(t, unknown, func(t *testing.T, s *service) {
		l := s.grant()
		window := l.Until()
		l.Abandon()
		l.Renewed(distributed.Validity(time.Now(), ttl))
		until := l.Until()
		assert.True(t, until.After(window))
		l.Renewed(until.Add(-time.Second))
		assert.Equal(t, until, l.Until(), "it is never shortened")
		<-l.Lost()
		assert.Zero(t, time.Until(until))
		l.Renewed(until.Add(ttl))
		assert.Equal(t, until, l.Until())
		left, healthy := l.At(time.Now())
		assert.False(t, left > 0 || healthy)
		assert.Empty(t, s.times(l))
	})
}

package keepalive_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/keepalive"
	"github.com/wllock/wllock/internal/race"
)

func TestRenewed(t *testing.T) {
	serving(t, renewed, func(t *testing.T, s *service) {
		start, l, earlier := time.Now(), s.grant(), s.grant()
		earlier.RenewBy(start.Add(ttl / 12))
		earlier.RenewBy(start.Add(ttl / 2))
		for range 100 {
			require.True(t, l.Healthy())
			require.False(t, distributed.Over(time.Now(), l.Until()))
			time.Sleep(ttl / 10)
		}
		require.True(t, l.Finish())
		require.True(t, earlier.Finish())
		assert.Equal(t, start.Add(ttl/12), s.times(earlier)[0])

		at := s.times(l)
		assert.Equal(t, ttl/6, at[0].Sub(start), "the claim comes at a third of its window")
		for i := 1; i < len(at); i++ {
			gap := at[i].Sub(at[i-1])
			assert.LessOrEqual(t, gap, ttl/3)
			assert.Greater(t, gap, ttl/3-ttl/50, "no more often than needed")
		}
		time.Sleep(ttl)
		assert.Len(t, s.times(l), len(at), "a finished lease is not renewed")
		assert.False(t, isLost(l))
	})
}

func TestRenewalAnsweredGone(t *testing.T) {
	serving(t, ended, func(t *testing.T, s *service) {
		l, w := s.watched()
		sleep(ttl / 6)
		assert.True(t, isLost(l))
		assert.False(t, l.Healthy())
		assert.Equal(t, []distributed.Lease{l}, w.lost)
		sleep(ttl)
		assert.Len(t, s.times(l), 1)
		assert.Len(t, w.lost, 1)
	})
}

func TestUnknownThenRecovered(t *testing.T) {
	serving(t, unknown, func(t *testing.T, s *service) {
		l := s.grant()
		time.Sleep(ttl/6 + ttl/5)
		assert.False(t, l.Healthy())
		assert.InDelta(t, 1+30/5, len(s.times(l)), 1, "it is asked again every T/30")
		assert.False(t, isLost(l))
		s.answers(renewed)
		sleep(ttl / 30)
		assert.True(t, l.Healthy())
		time.Sleep(2 * ttl)
		assert.True(t, l.Healthy())
		l.Finish()
	})
}

func TestUnknownUntilOver(t *testing.T) {
	for name, answer := range map[string]func(context.Context, *lease){"refused": unknown, "hanging": hangs} {
		t.Run(name, func(t *testing.T) {
			serving(t, answer, func(t *testing.T, s *service) {
				l := s.grant()
				until := l.Until()
				<-l.Lost()
				assert.Equal(t, until, l.Until(), "nothing has moved it")
				assert.Zero(t, time.Until(until), "the end is noticed when it comes, whatever is under way")
			})
		})
	}
}

func TestHealthyKnowsALateAnswer(t *testing.T) {
	serving(t, hangs, func(t *testing.T, s *service) {
		l := s.grant()
		time.Sleep(ttl/6 + ttl/12)
		assert.True(t, l.Healthy(), "an answer may take a while")
		time.Sleep(ttl/6 + 1)
		assert.False(t, l.Healthy(), "but not longer than T/4")
	})
}

// The answers of one batch can arrive apart: a lease answered early is due again while the rest is still under way.
func TestEarlyAnswerInALateBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late atomic.Pointer[lease]
		var running atomic.Int32
		s := serve(func(ctx context.Context, l *lease) {
			if l == late.Load() {
				hangs(ctx, l)
				return
			}
			assert.EqualValues(t, 1, running.Add(1), "two renewals of one lease at a time")
			until := distributed.Validity(time.Now(), ttl)
			time.Sleep(ttl / 20)
			l.Renewed(until)
			running.Add(-1)
		})
		defer s.Close()
		time.Sleep(ttl / 200) // off the grid, so that the next renewal is planned a little before T/3 has passed
		early := s.grant()
		late.Store(s.grant())
		for range 300 {
			time.Sleep(ttl / 100)
			require.True(t, early.Healthy())
		}
		early.Finish()
	})
}

// Only a few calls are under way however many leases are due and however long the backend hangs; all leases end on time.
func TestHangingBackend(t *testing.T) {
	var running, most atomic.Int32
	counted := func(ctx context.Context, _ *lease) {
		if ctx.Err() == nil {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-ctx.Done()
		}
	}
	serving(t, counted, func(t *testing.T, s *service) {
		var leases []*lease
		for range 200 {
			leases = append(leases, s.grant())
			time.Sleep(ttl / 250)
		}
		last := leases[199]
		time.Sleep(ttl/6 + ttl/4 + time.Millisecond)
		assert.False(t, last.Healthy(), "it could not even be asked for")
		assert.False(t, isLost(last))
		for _, l := range leases {
			<-l.Lost()
			assert.LessOrEqual(t, time.Until(last.Until()), last.Until().Sub(l.Until()), "noticed late")
		}
		assert.EqualValues(t, 4, most.Load())
	})
}

// When all calls are always busy with others' claims, a lease is renewed after the calls that were under way when it fell
// due, and not when it happens to find one of them at its end.
func TestLateLeasesComeNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const exchange = 50 * time.Millisecond
		k := keepalive.NewKeeper(func(_ context.Context, due []distributed.Lease) {
			sent := time.Now()
			time.Sleep(exchange)
			for _, w := range due {
				w.(*lease).Renewed(distributed.Validity(sent, ttl))
			}
		})
		defer k.Close()
		var leases []*lease
		for range 2000 {
			l, now := new(lease), time.Now()
			k.Keep(&l.Lease, l, ttl, distributed.Validity(now, ttl/2), now.Add(ttl/6))
			leases = append(leases, l)
			time.Sleep(time.Millisecond)
			if n := len(leases) - 1 - int((ttl/6+2*exchange)/time.Millisecond) - 1; n >= 0 {
				require.Greater(t, time.Until(leases[n].Until()), ttl/2, "lease %d is not claimed yet", n)
			}
		}
		for _, l := range leases {
			require.True(t, l.Finish())
		}
	})
}

// A service that renews a hundred leases a second keeps two hundred. Callers want more, and get about as many as can be kept.
func TestNewLeasesWaitForLateRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := make(chan struct{}, 1)
		var away atomic.Bool
		k := keepalive.NewKeeper(func(ctx context.Context, due []distributed.Lease) {
			for _, w := range due {
				if ctx.Err() != nil {
					return
				}
				server <- struct{}{}
				sent := time.Now()
				time.Sleep(10 * time.Millisecond)
				<-server
				if !away.Load() {
					w.(*lease).Renewed(distributed.Validity(sent, ttl))
				}
			}
		})
		defer k.Close()
		ctx, stop := context.WithTimeout(t.Context(), 20*ttl)
		defer stop()
		var all []*lease // of who is at the server
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for k.CatchUp(ctx) == nil && ctx.Err() == nil {
					sent := time.Now()
					server <- struct{}{}
					time.Sleep(30 * time.Millisecond)
					l := new(lease)
					k.Keep(&l.Lease, l, ttl, distributed.Validity(sent, ttl/2), sent.Add(ttl/6))
					all = append(all, l)
					<-server
				}
			})
		}
		callers.Wait()
		t.Log(len(all), "leases")
		require.Greater(t, len(all), 120)
		lost := 0
		for _, l := range all {
			if isLost(l) {
				lost++
			}
		}
		require.LessOrEqual(t, lost, len(all)/20, "in some orders a few come before a renewal is late: without CatchUp nearly all are lost")
		away.Store(true) // who asks now learns it at once, and not from us
		time.Sleep(ttl)
		require.NoError(t, k.CatchUp(t.Context()))
	})
}

// After a pause of a service all renewals are late, and more than one call can make in time.
func TestAPauseOfAServiceCostsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, each = 20_000, 500
		var paused atomic.Int64 // until then
		base := time.Now()
		k := keepalive.NewKeeper(func(ctx context.Context, due []distributed.Lease) {
			for some := range slices.Chunk(due, each) {
				if ctx.Err() != nil {
					return
				}
				sent := time.Now()
				time.Sleep(max(time.Duration(paused.Load())-time.Since(base), 0) + 2*ttl/3/(n/each)) // one call after the other would take two thirds of T for all
				for _, w := range some {
					w.(*lease).Renewed(distributed.Validity(sent, ttl))
				}
			}
		})
		defer k.Close()
		leases := make([]lease, n)
		for i := range leases {
			l, now := &leases[i], time.Now()
			k.Keep(&l.Lease, l, ttl, distributed.Validity(now, ttl/2), now.Add(ttl/6))
			if i%100 == 0 {
				time.Sleep(ttl / 100)
			}
		}
		for range 3 {
			time.Sleep(2 * ttl)
			paused.Store(int64(time.Since(base) + ttl/3))
		}
		time.Sleep(2 * ttl)
		lost := 0
		for i := range leases {
			if isLost(&leases[i]) {
				lost++
			}
		}
		require.Zero(t, lost)
	})
}

func TestManyLeasesAreRenewedOnTime(t *testing.T) {
	type timed struct {
		lease
		last time.Time
	}
	synctest.Test(t, func(t *testing.T) {
		n := 100_000
		if race.Enabled {
			n = 20_000 // heaps of 100,000 would take many seconds
		}
		var calls, late atomic.Int64
		k := keepalive.NewKeeper(func(_ context.Context, due []distributed.Lease) {
			now := time.Now()
			until := distributed.Validity(now, ttl)
			calls.Add(1)
			for _, w := range due {
				l := w.(*timed) // renewals of one lease do not overlap, so its fields need no lock
				if now.Sub(l.last) > ttl/3 {
					late.Add(1)
				}
				l.last = now
				l.Renewed(until)
			}
		})
		defer k.Close()
		leases := make([]timed, n)
		for i := range leases {
			l, now := &leases[i], time.Now()
			l.last = now
			k.Keep(&l.Lease, l, ttl, distributed.Validity(now, ttl/2), now.Add(ttl/6))
			if i%100 == 0 {
				time.Sleep(ttl / 1000)
			}
		}
		time.Sleep(ttl)
		for i := range leases {
			require.True(t, leases[i].Finish())
		}
		assert.Zero(t, late.Load())
		assert.Less(t, calls.Load(), int64(n/50), "renewals are gathered")
	})
}

func TestKeeperClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var under atomic.Int32
		s := serve(func(ctx context.Context, _ *lease) {
			under.Add(1)
			<-ctx.Done()
			time.Sleep(time.Second) // to clean up
			under.Add(-1)
		})
		w := new(witness)
		asked := s.grant()
		time.Sleep(ttl/6 + 1)
		quiet := s.grant()
		quiet.Watch(w, quiet)
		require.EqualValues(t, 1, under.Load())
		s.Close()
		assert.Zero(t, under.Load(), "Close waits for renewals under way")
		s.Close()
		assert.False(t, isLost(asked) || isLost(quiet), "leases are not ended")

		time.Sleep(ttl/6 + 1)
		assert.False(t, quiet.Healthy(), "it was to be claimed")
		<-quiet.Lost()
		synctest.Wait()
		assert.Zero(t, time.Until(quiet.Until()), "they expire")
		assert.True(t, isLost(asked))
		assert.Len(t, w.lost, 1)
		assert.Empty(t, s.times(quiet))
	})
}

// A Watcher receives each renewal and each try without answer, and none once a release has begun.
func TestTheWatcherIsToldOfEachRenewal(t *testing.T) {
	serving(t, renewed, func(t *testing.T, s *service) {
		l, r := s.watched()
		start := time.Now()
		sleep(ttl/6 + ttl/2)
		require.Equal(t, []error{nil, nil}, r.renewed, "the claim and a renewal")
		require.Equal(t, start.Add(ttl/6), r.sent[0])
		s.answers(unknown)
		sleep(ttl/6 + ttl/10)
		require.Greater(t, len(r.renewed), 3, "each try")
		for _, err := range r.renewed[2:] {
			require.ErrorIs(t, err, distributed.ErrUnavailable)
		}
		require.True(t, l.Finish())
		n := len(r.renewed)
		sleep(ttl)
		require.Len(t, r.renewed, n)
		require.Empty(t, r.lost)
	})
}

// An unread grant is not claimed. That is no failure, and once it is received it is claimed soon.
func TestPostponedRenewalIsNoFailure(t *testing.T) {
	serving(t, postponed, func(t *testing.T, s *service) {
		l, r := s.watched()
		for time.Until(l.Until()) > ttl/30 {
			require.True(t, l.Healthy())
			time.Sleep(ttl / 300)
		}
		synctest.Wait()
		require.Empty(t, r.renewed)
		s.answers(renewed)
		window := l.Until()
		sleep(ttl / 30)
		require.True(t, l.Until().After(window), "claimed")
		require.Equal(t, []error{nil}, r.renewed)
		l.Finish()
	})
}

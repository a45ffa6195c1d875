package outage_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/outage"
)

// judged runs f with a breaker over b, in a bubble. Without a name it is t itself.
func judged(t *testing.T, name string, b distributed.Backend, ttl time.Duration, f func(t *testing.T, k *outage.Breaker)) {
	judgedWith(t, name, outage.Config{Backend: b, TTL: ttl, Logger: silent}, f)
}

func judgedWith(t *testing.T, name string, c outage.Config, f func(t *testing.T, k *outage.Breaker)) {
	run := func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k := outage.NewBreaker(c)
			defer k.Stop()
			f(t, k)
		})
	}
	if name == "" {
		run(t)
		return
	}
	t.Run(name, run)
}

// TestWhatIsEvidence: each case breaks one rule of the judge, if it is left out.
func TestWhatIsEvidence(t *testing.T) {
	failing := func(why ...any) func(context.Context) error {
		return func(context.Context) error { return fmt.Errorf("%w: %w", why...) }
	}
	for name, c := range map[string]struct {
		does      func(context.Context) error
		suspected bool
	}{
		"a key that is held":              {failing(distributed.ErrHeld, io.EOF), false},
		"a backend that is closed":        {failing(distributed.ErrClosed, io.EOF), false},
		"a dial that times out":           {failing(unreached(t.Context()), context.DeadlineExceeded), true},
		"a reply that was not waited for": {failing(distributed.ErrUnavailable, context.DeadlineExceeded), false},
	} {
		b := newObservable(after(time.Millisecond))
		judged(t, name, b, 5*time.Second, func(t *testing.T, k *outage.Breaker) {
			require.NoError(t, enter(k, time.Second))
			for range 3 {
				b.report(time.Now(), c.does(t.Context()))
			}
			require.Equal(t, c.suspected, k.Suspect() != nil)
		})
	}
}

// TestWhoWaitsHasTheBackendAsked, although nothing else is exchanged.
func TestWhoWaitsHasTheBackendAsked(t *testing.T) {
	b := newObservable(after(time.Millisecond))
	judged(t, "for a grant", b, 5*time.Second, func(t *testing.T, k *outage.Breaker) {
		canceled := k.Await()
		defer k.Awaited()
		time.Sleep(10 * time.Second)
		require.Greater(t, b.echoes.Load(), int32(8))
		b.does(silently)
		began := time.Now()
		<-canceled
		require.Less(t, time.Since(began), 2*time.Second)
	})
	b = newObservable(after(time.Millisecond))
	judged(t, "for an Enter, while others are answered", b, 5*time.Second, func(t *testing.T, k *outage.Breaker) {
		require.NoError(t, enter(k, time.Second))
		b.does(silently)
		began := time.Now()
		time.AfterFunc(100*time.Millisecond, func() { b.report(time.Now().Add(-time.Millisecond), nil) })
		require.ErrorIs(t, enter(k, time.Minute), distributed.ErrUnavailable)
		require.Less(t, time.Since(began), 1500*time.Millisecond)
	})
}

// TestPatienceFollowsTheRoundTrip, up and down.
func TestPatienceFollowsTheRoundTrip(t *testing.T) {
	b := newObservable(after(time.Millisecond))
	judged(t, "", b, 5*time.Second, func(t *testing.T, k *outage.Breaker) {
		suspectedAt := func(at time.Duration) error {
			suspect := make(chan error, 1)
			time.AfterFunc(at, func() { suspect <- k.Suspect() })
			_ = enter(k, at+300*time.Millisecond)
			return <-suspect
		}
		times := func(n int, d time.Duration) {
			b.does(after(d))
			time.Sleep(3 * time.Second) // it is back
			for range n {
				require.NoError(t, enter(k, time.Minute))
			}
		}
		times(10, time.Millisecond)
		b.does(silently)
		require.Error(t, suspectedAt(300*time.Millisecond), "a question has waited for longer than patience")
		times(50, 250*time.Millisecond)
		b.does(after(850 * time.Millisecond))
		require.NoError(t, suspectedAt(800*time.Millisecond), "four round trips")
		times(100, time.Millisecond)
		b.does(silently)
		require.Error(t, suspectedAt(300*time.Millisecond))
	})
}

// TestJoiningAndLeavingAJudge: the shortest TTL sets the pace, and who comes into an outage learns of it.
func TestJoiningAndLeavingAJudge(t *testing.T) {
	b := newObservable(after(time.Millisecond))
	judged(t, "the shortest TTL sets the pace", b, time.Hour, func(t *testing.T, _ *outage.Breaker) {
		k := outage.NewBreaker(outage.Config{Backend: b, TTL: 300 * time.Millisecond, Logger: silent})
		defer k.Stop()
		require.NoError(t, enter(k, time.Second))
		b.does(silently)
		began := time.Now()
		require.ErrorIs(t, enter(k, time.Minute), distributed.ErrUnavailable)
		require.Less(t, time.Since(began), 500*time.Millisecond)
	})
	require.Empty(t, b.observers, "the last has unsubscribed")
	b = newObservable(unreached)
	judged(t, "who comes into an outage learns of it", b, time.Second, func(t *testing.T, k *outage.Breaker) {
		_ = enter(k, time.Second)
		time.Sleep(time.Second)
		l := outage.NewLocalOnly(outage.Config{Backend: b, TTL: time.Second, Logger: silent})
		defer l.Stop()
		time.Sleep(1500 * time.Millisecond)
		require.True(t, l.Degraded())
	})
}

// TestTheDecisionAnswersOnlyWhatIsOpen: neither a caller whose own time ended before, nor a question with an answer.
func TestTheDecisionAnswersOnlyWhatIsOpen(t *testing.T) {
	b := newObservable(func(ctx context.Context) error {
		time.Sleep(3 * time.Second) // whatever its caller does
		return fmt.Errorf("%w: late", distributed.ErrUnavailable)
	})
	refused := (*outage.Refused)(nil)
	judged(t, "a caller that has left", b, time.Second, func(t *testing.T, k *outage.Breaker) {
		require.NotErrorAs(t, enter(k, 100*time.Millisecond), &refused)
		require.Error(t, k.Suspect())
	})
	b = newObservable(silently)
	judged(t, "a lease that is lost", b, time.Second, func(t *testing.T, k *outage.Breaker) {
		err := k.Ask(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			return distributed.ErrLeaseLost
		})
		require.ErrorIs(t, err, distributed.ErrLeaseLost)
		require.NotErrorAs(t, err, &refused)
	})
	var f *fakeBackend
	f = newFake(hang, func(context.Context) error {
		if f.pings.Load() > manyEchoes {
			restless("it asks again and again what is refused")
		}
		return distributed.ErrRefused
	})
	judged(t, "an Enter at a service that refuses others", f, time.Second, func(t *testing.T, k *outage.Breaker) {
		require.NotErrorAs(t, enter(k, time.Minute), &refused)
	})
}

// All policies over a backend share one judge, which ends with the last of them.
func TestJudgeIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newObservable(unreached)
		first := policies(t, b, time.Hour, silent)["closed"]
		require.ErrorIs(t, enter(first, time.Second), distributed.ErrUnavailable)
		time.Sleep(time.Second)
		late := outage.NewBreaker(outage.Config{Backend: b, System: "other", TTL: time.Hour, Logger: silent})
		enters := b.enters.Load()
		require.ErrorIs(t, enter(late, time.Second), distributed.ErrUnavailable)
		require.Equal(t, enters, b.enters.Load(), "what one knows, all know")
		late.Stop()
		late.Stop()
		b.does(up)
		time.Sleep(2 * time.Second)
		require.NoError(t, enter(first, time.Second))
	})
}

// Connections that break at the same time, as after CLIENT KILL, are one failure.
func TestBrokenConnectionsAreOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newObservable(after(time.Millisecond))
		p := policies(t, b, 5*time.Second, silent)["closed"]
		require.NoError(t, enter(p, time.Second))
		time.Sleep(1500 * time.Millisecond) // nothing else is under way
		for range 20 {
			b.report(time.Now().Add(-time.Millisecond), fmt.Errorf("%w: connection reset", distributed.ErrUnavailable))
		}
		require.True(t, p.Status().Available)
		require.NoError(t, enter(p, time.Second))
	})
}

// What was asked before the last answer and fails after it tells nothing.
func TestAnswerRefutesWhatWasAskedBefore(t *testing.T) {
	b := newObservable(after(time.Millisecond))
	judgedWith(t, "", outage.Config{Backend: b, System: "test", TTL: time.Second, Logger: silent}, func(t *testing.T, p *outage.Breaker) {
		require.NoError(t, enter(p, time.Second))
		for range 10 {
			asked := time.Now()
			time.Sleep(time.Second)
			b.report(time.Now().Add(-time.Millisecond), nil)
			b.report(asked, fmt.Errorf("%w: connection reset", distributed.ErrUnavailable))
			require.NoError(t, p.Suspect())
		}
	})
}

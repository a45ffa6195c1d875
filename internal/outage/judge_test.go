package outage_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/outage"
)

// observable is a backend that reports its exchanges and knows TTLs. What it does to a question is one function.
type observable struct {
	distributed.Backend
	answer  atomic.Pointer[func(ctx context.Context) error]
	refuses atomic.Pointer[error] // of Enter
	echoes  atomic.Int32
	enters  atomic.Int32

	mu        sync.Mutex
	observers []*func(distributed.Exchange)
	longest   time.Duration
}

func newObservable(answer func(context.Context) error) *observable {
	b := new(observable)
	b.does(answer)
	return b
}

func (b *observable) does(answer func(context.Context) error) { b.answer.Store(&answer) }

func (b *observable) Observe(f func(distributed.Exchange)) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observers = append(b.observers, &f)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.observers = slices.DeleteFunc(b.observers, func(g *func(distributed.Exchange)) bool { return g == &f })
	}
}

// exchange asks, and reports what comes of it.
func (b *observable) exchange(ctx context.Context, refuses error) error {
	sent := time.Now()
	err := (*b.answer.Load())(ctx)
	if err == nil {
		err = refuses
	}
	b.report(sent, err)
	return err
}

func (b *observable) report(sent time.Time, err error) {
	e := distributed.Exchange{Sent: sent, Err: err}
	if err == nil || errors.Is(err, distributed.ErrRefused) {
		e.RTT = max(time.Since(sent), 1)
	}
	b.tell(e)
}

func (b *observable) tell(e distributed.Exchange) {
	b.mu.Lock()
	all := slices.Clone(b.observers)
	b.mu.Unlock()
	for _, f := range all {
		(*f)(e)
	}
}

func (b *observable) Echo(ctx context.Context) error {
	b.echoes.Add(1)
	return b.exchange(ctx, nil)
}

func (b *observable) Ping(context.Context) error { panic("too heavy a question") }

func (b *observable) Enter(ctx context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
	b.enters.Add(1)
	var refuses error
	if why := b.refuses.Load(); why != nil {
		refuses = *why
	}
	if err := b.exchange(ctx, refuses); err != nil {
		return nil, nil, err
	}
	return newFakeLease(time.Hour), nil, nil
}

func (b *observable) LongestTTL(ctx context.Context, _ string, own time.Duration) (time.Duration, error) {
	err := b.exchange(ctx, nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.longest = max(b.longest, own)
	return b.longest, err
}

// unreached is a server that is gone.
func unreached(context.Context) error {
	return fmt.Errorf("dial: %w: %w", distributed.ErrUnavailable, distributed.ErrUnreached)
}

// silent is a server that hangs, with a client that waits as long as its caller.
func silently(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", distributed.ErrUnavailable, ctx.Err())
}

// after answers after d.
func after(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		if takes(d, nil)(ctx) == nil {
			return nil
		}
		return silently(ctx)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

type aPolicy interface {
	distributed.Backend
	Await() <-chan struct{}
	Awaited()
	Suspect() error
	Status() outage.Status
	Degraded() bool
	Stop()
}

// policies returns one of each over the same backend.
func policies(t *testing.T, b distributed.Backend, ttl time.Duration, log *slog.Logger) map[string]aPolicy {
	c := outage.Config{Backend: b, System: "test", TTL: ttl, Logger: log}
	all := map[string]aPolicy{"closed": outage.NewBreaker(c), "local": outage.NewLocalOnly(c)}
	t.Cleanup(func() {
		for _, p := range all {
			p.Stop()
		}
	})
	return all
}

func enter(p aPolicy, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	_, _, err := p.Enter(ctx, distributed.Request{})
	return err
}

// A backend that is slow but answers is never away, neither to callers nor to those that only wait for a grant.
func TestDistantBackendIsNotAway(t *testing.T) {
	for _, ttl := range []time.Duration{300 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second} {
		for _, part := range []float64{0.01, 0.2, 0.33} {
			synctest.Test(t, func(t *testing.T) {
				b := newObservable(after(min(time.Duration(float64(ttl)*part), 1500*time.Millisecond)))
				for _, p := range policies(t, b, ttl, silent) {
					canceled := p.Await()
					for began := time.Now(); time.Since(began) < 20*time.Second; {
						require.NoError(t, enter(p, time.Minute), "T %v, round trip %v T", ttl, part)
						require.False(t, p.Degraded())
						time.Sleep(ttl / 3)
					}
					require.False(t, isClosed(canceled), "called away")
					p.Awaited()
				}
			})
		}
	}
}

// A slow command of the server, or a fork, is no outage.
func TestOneSlowAnswerIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newObservable(after(time.Millisecond))
		all := policies(t, b, time.Second, silent)
		for range 20 {
			b.does(after(time.Millisecond))
			for _, p := range all {
				require.NoError(t, enter(p, time.Second))
			}
			b.does(after(400 * time.Millisecond))
			for _, p := range all {
				require.NoError(t, enter(p, time.Second))
			}
		}
	})
}

// What others are answered counts: their heartbeats and renewals refute a silence, and no question is asked.
func TestAnswersToOthersCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newObservable(after(time.Millisecond))
		for _, p := range policies(t, b, time.Second, silent) {
			require.NoError(t, enter(p, time.Second))
			p.Await()
			defer p.Awaited()
		}
		b.does(silently) // what we ask
		for range 500 {
			b.report(time.Now().Add(-time.Millisecond), nil)
			time.Sleep(20 * time.Millisecond)
		}
		require.Zero(t, b.echoes.Load())
	})
}

// Refused connections are known within 100 ms, whatever T is, and whoever asks.
func TestRefusedConnectionsAreKnownAtOnce(t *testing.T) {
	for _, ttl := range []time.Duration{300 * time.Millisecond, 5 * time.Second, time.Hour} {
		b := newObservable(after(time.Millisecond))
		c := outage.Config{Backend: b, System: "test", TTL: ttl, Logger: silent}
		judgedWith(t, "", c, func(t *testing.T, p *outage.Breaker) {
			require.NoError(t, enter(p, time.Second))
			canceled := p.Await()
			defer p.Awaited()
			b.does(unreached)
			require.ErrorIs(t, enter(p, time.Minute), distributed.ErrUnreached)
			time.Sleep(100 * time.Millisecond)
			require.True(t, isClosed(canceled), "not known yet")
			asked := b.enters.Load()
			err := enter(p, time.Minute)
			require.ErrorIs(t, err, distributed.ErrUnavailable)
			require.ErrorContains(t, err, "dial", "the cause")
			require.Equal(t, asked, b.enters.Load())
			require.False(t, p.Status().Available)
			require.ErrorContains(t, p.Status().Err, "dial")
		})
	}
}

// Silence is known within a second; it ends the Enters under way, and calls those away that wait for a grant.
func TestSilenceIsKnownWithinASecond(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 5 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			b := newObservable(after(time.Millisecond))
			p := policies(t, b, ttl, silent)["closed"]
			require.NoError(t, enter(p, time.Second))
			canceled := p.Await()
			defer p.Awaited()
			b.does(silently)
			began := time.Now()
			var callers sync.WaitGroup
			for range 10 {
				callers.Go(func() {
					require.ErrorIs(t, enter(p, time.Minute), distributed.ErrUnavailable)
					require.LessOrEqual(t, time.Since(began), time.Second)
				})
			}
			time.Sleep(600 * time.Millisecond)
			require.ErrorIs(t, p.Suspect(), distributed.ErrUnavailable, "soon suspected")
			callers.Wait()
			<-canceled
			require.ErrorIs(t, enter(p, time.Minute), distributed.ErrUnavailable)
			require.LessOrEqual(t, time.Since(began), time.Second)
			b.does(after(time.Millisecond))
			time.Sleep(2 * time.Second)
			require.NoError(t, enter(p, time.Second))
			require.NoError(t, p.Suspect())
			require.True(t, p.Status().Available)
		})
	}
}

// A service that answers and refuses is not away: nobody is let in without a lease, and its words reach callers, log and
// status.
func TestRefusalIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		b := newObservable(after(time.Millisecond))
		noperm := fmt.Errorf("%w: %w: NOPERM no rights", distributed.ErrUnavailable, distributed.ErrRefused)
		b.refuses.Store(&noperm)
		all := policies(t, b, time.Second, logTo(&log))
		for range 200 {
			for _, p := range all {
				require.ErrorIs(t, enter(p, time.Second), noperm)
				require.False(t, p.Degraded())
				require.False(t, p.Status().Available)
				require.ErrorIs(t, p.Status().Err, noperm)
			}
			time.Sleep(time.Second)
		}
		require.Contains(t, strings.SplitN(log.String(), "\n", 2)[0], "NOPERM no rights")
		require.LessOrEqual(t, strings.Count(log.String(), "\n"), 2*4, "one line a minute and policy")
		b.refuses.Store(new(error))
		for _, p := range all {
			require.NoError(t, enter(p, time.Second))
			require.True(t, p.Status().Available)
			require.NoError(t, p.Status().Err)
		}
	})
}

// Also when all questions are refused, as with a wrong password.
func TestRefusedEchoIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrongpass := fmt.Errorf("%w: %w: WRONGPASS", distributed.ErrUnavailable, distributed.ErrRefused)
		b := newObservable(func(context.Context) error { return wrongpass })
		for _, p := range policies(t, b, time.Second, silent) {
			p.Await()
			defer p.Awaited()
			for range 50 {
				require.ErrorIs(t, enter(p, time.Second), wrongpass)
				require.False(t, p.Degraded())
				time.Sleep(100 * time.Millisecond)
			}
		}
	})
}

// A LocalOnly waits for the longest T of the system, which it learns while the backend is up.
func TestLocalOnlyWaitsForTheLongestTTL(t *testing.T) {
	for name, c := range map[string]struct {
		noted, given, want time.Duration
	}{
		"another's":           {10 * time.Second, 0, 10 * time.Second},
		"given":               {0, 7 * time.Second, 7 * time.Second},
		"given, and noted":    {10 * time.Second, 7 * time.Second, 10 * time.Second},
		"own, if it is alone": {0, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newObservable(after(time.Millisecond))
				l := outage.NewLocalOnly(outage.Config{Backend: b, System: "test", TTL: time.Second, Longest: c.given, Logger: silent})
				defer l.Stop()
				require.NoError(t, enter(l, time.Second))
				_, _ = b.LongestTTL(t.Context(), "test", c.noted) // by another instance, later
				time.Sleep(2500 * time.Millisecond)
				b.does(unreached)
				require.NoError(t, enter(l, time.Second), "a place")
				time.Sleep(c.want - time.Millisecond)
				require.False(t, l.Degraded())
				time.Sleep(2 * time.Millisecond)
				require.True(t, l.Degraded())
			})
		})
	}
}

// An instance notes its TTL before it takes a lease, whatever its policy.
func TestTTLIsNotedBeforeTheFirstLease(t *testing.T) {
	b := newObservable(after(time.Millisecond))
	c := outage.Config{Backend: b, System: "test", TTL: time.Minute, Logger: silent}
	judgedWith(t, "", c, func(t *testing.T, k *outage.Breaker) {
		require.NoError(t, enter(k, time.Second))
		noted := func() (ttl time.Duration) {
			b.mu.Lock()
			defer b.mu.Unlock()
			ttl, b.longest = b.longest, 0 // it forgets
			return ttl
		}
		require.Equal(t, time.Minute, noted())
		time.Sleep(61 * time.Second)
		require.Equal(t, time.Minute, noted())
	})
}

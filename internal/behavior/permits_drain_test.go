package behavior

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// An exclusive caller whose own process holds a permit is queued at the backend as one of any other process: it is drained for everywhere.
func TestDrainBesideOnesOwnPermits(t *testing.T) { // rule P6
	synctest.Test(t, func(t *testing.T) {
		l, b := newLocker(t)
		other := lockerOn(t, b)
		two := wllock.Permits(2)
		own := comes(t, l, two)
		writer := comes(t, l)
		require.Equal(t, "waiting", writer.state())
		require.Equal(t, "held", comes(t, other, two, wllock.NoWait()).state(), "the backend knows of the writer")
		after, elsewhere := comes(t, l, two), comes(t, other, two)
		require.Equal(t, "held", comes(t, l, two, wllock.NoWait()).state())
		require.Equal(t, "held", comes(t, l, wllock.NoWait()).state())
		require.Equal(t, []string{"waiting", "waiting", "waiting"}, are(writer, after, elsewhere))
		leaves(own)
		require.Equal(t, []string{"in", "waiting", "waiting"}, are(writer, after, elsewhere))
		leaves(writer)
		require.Equal(t, []string{"in", "in"}, are(after, elsewhere))
		leaves(after, elsewhere)
		time.Sleep(ttl)
		nothingLeft(t, b, l, other)
	})
}

// While callers of three processes come and go all the time, an exclusive one of any waits for those inside and the round before it, which
// waits already, and not for its own process's permits first and those of the others afterwards.
func TestDrainOfPermitsThatComeAndGo(t *testing.T) { // rule P6
	const stays = 300 * time.Millisecond
	for name, opts := range map[string][]wllock.Option{
		"plain":      nil,
		"linger":     {wllock.WithLinger(time.Minute)},
		"local only": {wllock.WithOutage(wllock.LocalOnly)},
	} {
		bubble(t, name, func(t *testing.T) {
			b := memlock.New()
			all := []*wllock.Locker{lockerOn(t, b, opts...), lockerOn(t, b, opts...), lockerOn(t, b, opts...)}
			ctx, cancel := context.WithCancel(t.Context())
			var callers sync.WaitGroup
			for i, l := range all {
				for range 2 {
					for _, more := range [][]wllock.CallOption{nil, {wllock.NoWait()}} {
						callers.Go(func() {
							for ctx.Err() == nil {
								_ = l.Do(ctx, "n", "k", func(context.Context) error { time.Sleep(stays + time.Duration(i)*time.Millisecond); return nil },
									append(more, wllock.Permits(5))...)
								time.Sleep(time.Millisecond)
							}
						})
					}
				}
			}
			for range 5 {
				for _, l := range all {
					time.Sleep(stays / 2)
					begin := time.Now()
					require.NoError(t, l.Do(ctx, "n", "k", nothing))
					require.Less(t, time.Since(begin), 2*stays)
				}
			}
			cancel()
			callers.Wait()
			time.Sleep(2 * time.Minute)
			nothingLeft(t, b, all...)
		})
	}
}

// A permit of the same process that had its turn first is before the exclusive caller at the backend. If it loses its place, it waits there
// behind the exclusive caller, which in its own process waits for it, and gives way.
func TestDrainAfterAPermitOfItsOwnProcessThatIsLate(t *testing.T) { // rule P6
	for name, opt := range map[string]wllock.CallOption{"any lease": wllock.WithLockTimeMax(0), "a lease of its own": wllock.WithHoldAtLeast(1)} {
		for what, after := range map[string]func(*detour) (before, fails func()){
			"asks late": func(d *detour) (func(), func()) {
				gate := make(chan struct{})
				d.gate.Store(&gate)
				return func() { d.gate.Store(nil) }, func() { close(gate) }
			},
			"loses its place": func(d *detour) (func(), func()) {
				lost := make(chan struct{})
				d.lost.Store(&lost)
				return func() {}, func() { close(lost) }
			},
		} {
			bubble(t, what+", "+name, func(t *testing.T) {
				b := memlock.New()
				d := &detour{Backend: b}
				l, other, two := lockerOn(t, d, wllock.WithMaxHandoffs(0)), lockerOn(t, b), wllock.Permits(2)
				first, away := comes(t, l, two), comes(t, other, two)
				before, fails := after(d)
				second := comes(t, l, two, opt)
				before()
				writer := comes(t, l)
				fails()
				synctest.Wait()
				leaves(away, first)
				time.Sleep(time.Second)
				require.Equal(t, []string{"in", "waiting"}, are(second, writer))
				leaves(second)
				time.Sleep(time.Second)
				leaves(writer)
				time.Sleep(ttl)
				nothingLeft(t, b, l, other)
			})
		}
	}
}

func TestDrainWaitsForPermitsWithoutALease(t *testing.T) { // rules P6 and T9
	for when, back := range map[string]bool{"backend away": false, "backend back": true} {
		bubble(t, when, func(t *testing.T) {
			l, b := newLocker(t, wllock.WithOutage(wllock.LocalOnly))
			b.Partition(true)
			permit := comes(t, l, wllock.Permits(2), wllock.WithLockTimeMax(0))
			time.Sleep(2 * ttl)
			require.Equal(t, "in", permit.state())
			require.True(t, permit.held.Degraded())
			b.Partition(!back)
			time.Sleep(2 * ttl)
			writer, next := comes(t, l), comes(t, l)
			time.Sleep(10 * ttl)
			require.Equal(t, []string{"waiting", "waiting"}, are(writer, next))
			writer.end()
			require.Equal(t, []string{"canceled", "waiting"}, are(writer, next))
			leaves(permit)
			time.Sleep(ttl)
			require.Equal(t, "in", next.state())
			require.Equal(t, !back, next.held.Degraded())
			leaves(next)
			b.Partition(false)
			time.Sleep(3 * ttl)
			nothingLeft(t, b, l)
		})
	}
}

func TestDrainThatEndsBeforeOnesOwnPermits(t *testing.T) { // rules P6 and T3
	for state, end := range map[string]func(*wllock.Locker, *guest){
		"canceled": func(_ *wllock.Locker, g *guest) { g.end() },
		"timeout":  func(*wllock.Locker, *guest) { time.Sleep(2 * ttl) },
		"closed": func(l *wllock.Locker, _ *guest) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
			defer cancel()
			_ = l.Close(ctx)
		},
	} {
		bubble(t, state, func(t *testing.T) {
			l, b := newLocker(t)
			other, two := lockerOn(t, b), wllock.Permits(2)
			own := comes(t, l, two, wllock.WithLockTimeMax(0))
			writer := comes(t, l, wllock.WithWait(ttl))
			elsewhere := comes(t, other, two, wllock.WithLockTimeMax(0))
			require.Equal(t, []string{"waiting", "waiting"}, are(writer, elsewhere))
			end(l, writer)
			require.Equal(t, []string{state, "in"}, are(writer, elsewhere))
			if state != "closed" {
				leaves(own)
			}
			leaves(elsewhere)
			nothingLeft(t, b, other)
		})
	}
}

func TestDrainOfAllKinds(t *testing.T) { // rule P6
	for name, drain := range map[string]func(context.Context, *wllock.Locker, wllock.Func) error{
		"DoAll": func(ctx context.Context, l *wllock.Locker, fn wllock.Func) error {
			return l.DoAll(ctx, keys("j", "k"), fn)
		},
		"Lead": func(ctx context.Context, l *wllock.Locker, fn wllock.Func) error { return l.Lead(ctx, "n", "k", fn) },
		"at least": func(ctx context.Context, l *wllock.Locker, fn wllock.Func) error {
			return l.Do(ctx, "n", "k", fn, wllock.WithHoldAtLeast(time.Second))
		},
	} {
		bubble(t, name, func(t *testing.T) {
			l, b := newLocker(t)
			other, two := lockerOn(t, b), wllock.Permits(2)
			own := comes(t, l, two)
			in, done := false, make(chan error, 1)
			go func() { done <- drain(t.Context(), l, func(context.Context) error { in = true; return nil }) }()
			synctest.Wait()
			elsewhere := comes(t, other, two)
			require.Equal(t, "waiting", elsewhere.state())
			require.False(t, in)
			leaves(own)
			require.NoError(t, <-done)
			require.True(t, in)
			time.Sleep(2 * ttl)
			leaves(elsewhere)
			nothingLeft(t, b, l, other)
		})
	}
}

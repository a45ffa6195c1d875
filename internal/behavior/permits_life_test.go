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

func TestLifeOfPermits(t *testing.T) {
	// An exclusive caller whose own process holds a permit is queued at the backend as one of any other process: it is drained for everywhere.
	pair(t, "a drain beside one's own permits", func(t *testing.T, l, other *wllock.Locker, _ *memlock.Backend) { // rule P6
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
	})

	bubble(t, "a LocalOnly Locker", func(t *testing.T) { // rule P1
		b := memlock.New()
		l, other := lockerOn(t, b, wllock.WithOutage(wllock.LocalOnly)), lockerOn(t, b, wllock.WithOutage(wllock.LocalOnly))
		b.Partition(true)
		all := append(several(t, 3, l, two, forever), several(t, 3, other, two, forever)...)
		time.Sleep(2 * ttl)
		require.Equal(t, []string{"in", "in", "waiting", "in", "in", "waiting"}, are(all...), "n in each process")
		require.True(t, all[0].held.Degraded())
		require.Zero(t, all[0].fence)
		drain := comes(t, l)
		leaves(all[0], all[1])
		require.Equal(t, []string{"in", "waiting"}, are(all[2], drain))
		leaves(all[2])
		require.Equal(t, "in", drain.state())
		b.Partition(false)
		time.Sleep(2 * ttl)
		leaves(drain, all[3], all[4], all[5])
		time.Sleep(2 * ttl)
		g := comes(t, l, wllock.Permits(1))
		require.Equal(t, "in", g.state())
		require.False(t, g.held.Degraded())
		leaves(g)
	})

	scene(t, "Close", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) { // rule T8
		other := lockerOn(t, b)
		held, elsewhere, waits := several(t, 2, l, three), comes(t, other, three), several(t, 2, l, three)
		closed := make(chan error)
		go func() { closed <- l.Close(context.Background()) }()
		require.Equal(t, []string{"in", "in", "closed", "closed"}, are(append(held, waits...)...))
		leaves(held[0])
		require.Empty(t, closed)
		leaves(held[1])
		require.NoError(t, <-closed)
		leaves(elsewhere)
		nothingLeft(t, b, other)
	}, wllock.WithLinger(time.Hour))

	scene(t, "one that overstays is lost alone", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		fellow := comes(t, l, two, forever)
		stays := started(l, keys("k"), takes(5*ttl), two, wllock.WithLockTimeMax(ttl))
		begin, other := time.Now(), lockerOn(t, b)
		next := comes(t, other, two)
		require.Equal(t, "waiting", next.state())
		time.Sleep(2*ttl + ttl/2)
		require.Equal(t, []string{"in", "in"}, are(fellow, next), "within T of the maximum")
		lostAfter(t, <-stays)
		require.NoError(t, fellow.held.Err())
		require.Less(t, time.Since(begin), 6*ttl)
		leaves(fellow, next)
		nothingLeft(t, b, l, other)
	})

	// Other semaphores over a service count what is free, so a process that dies keeps its permits, or its keys, for ever.
	bubble(t, "they are free after a crash", func(t *testing.T) {
		b := memlock.New()
		m := &mortal{Backend: b}
		dead, other := lockerOn(t, m), lockerOn(t, b)
		victims, fellow := several(t, 2, dead, three, forever), comes(t, other, three, forever)
		line := several(t, 2, other, three)
		victims = append(victims, comes(t, dead, three)) // the last in line
		time.Sleep(3 * ttl)
		require.Equal(t, []string{"waiting", "waiting"}, are(line...))
		m.die()
		time.Sleep(ttl + ttl/10)
		require.Equal(t, []string{"in", "in", "in"}, are(fellow, line[0], line[1]))
		require.Equal(t, []string{"lost", "lost", "waiting"}, are(victims...))
		leaves(fellow, line[0], line[1])
		time.Sleep(2 * ttl)
		victims[2].end()
		nothingLeft(t, b, dead, other)
	})

	scene(t, "one stays taken for at least that long", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) { // rule N2
		other := lockerOn(t, b)
		begin := time.Now()
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, two, atLeast))
		require.NoError(t, other.Do(t.Context(), "n", "k", nothing, two, atLeast))
		require.Zero(t, time.Since(begin))
		require.Equal(t, "held", comes(t, l, two, wllock.NoWait()).state())
		waits := comes(t, other, two, atLeast)
		time.Sleep(least - 1)
		require.Equal(t, "waiting", waits.state())
		require.EqualValues(t, 1, l.Stats().Total.Held)
		require.True(t, l.Locks(1)[0].Staying)
		time.Sleep(time.Nanosecond)
		require.Equal(t, "in", waits.state())
		leaves(waits)
		require.NoError(t, other.Close(t.Context()))
		nothingLeft(t, memlock.New(), l)
	})

	pair(t, "they are shown", func(t *testing.T, l, other *wllock.Locker, _ *memlock.Backend) {
		all := append(several(t, 2, l, three), comes(t, other, three))
		line := append(several(t, 2, l, three), comes(t, other))
		time.Sleep(time.Millisecond)
		require.Len(t, l.Locks(9), 1)
		info := l.Locks(9)[0]
		require.Equal(t, []any{"permits", 3, 2, 1, true, l.Instance(), max(all[0].fence, all[1].fence)},
			[]any{info.Mode, info.Permits, info.Holders, info.Waiting, info.AtBackend, info.Holder, info.Fence})
		require.Equal(t, []int64{2, 1}, []int64{l.Stats().Names["n"].Held, l.Stats().Names["n"].Waiting})
		found, err := l.Inspect(t.Context(), "n", "k")
		require.NoError(t, err)
		require.Len(t, found.Holders, 3)
		require.Equal(t, l.Instance()+"#2", found.Holders[1].Instance)
		err = other.Do(t.Context(), "n", "k", nothing, wllock.WithWait(time.Second))
		require.Equal(t, l.Instance()+" and 2 more", asError(t, err).Holder)
		for _, g := range line {
			g.end()
		}
		leaves(all...)
	}, wllock.WithInstance("host"))

	// With what Permits recommends, a limit by WithName, a drain is possible as well.
	scene(t, "Exclusive drains a name with permits", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) { // rule P1
		all := []*guest{comes(t, l), comes(t, l)}
		drain, behind := comes(t, l, wllock.Exclusive()), comes(t, l)
		require.Equal(t, []string{"in", "in", "waiting", "waiting"}, are(all[0], all[1], drain, behind))
		leaves(all...)
		require.Equal(t, []string{"in", "waiting"}, are(drain, behind))
		leaves(drain, behind)
		leaves(comes(t, l, wllock.Shared(), wllock.Exclusive()), comes(t, l, wllock.Exclusive(), two))
		nothingLeft(t, b, l)
	}, wllock.WithName("n", two))

	bubble(t, "SyncRelease", func(t *testing.T) { // rule T5
		b := memlock.New()
		l := lockerOn(t, tardy(b, tardyBy))
		begin := time.Now()
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, two, wllock.SyncRelease()))
		require.Equal(t, tardyBy, time.Since(begin))
		k := acquire(t, l, "k", two)
		drain := comes(t, l)
		require.NoError(t, k.Release(t.Context()))
		require.Equal(t, 2*tardyBy, time.Since(begin), "also if others wait that cannot use its lane")
		leaves(drain)
	})

	scene(t, "lingering ones", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		other := lockerOn(t, b)
		leaves(several(t, 2, l, two)...)
		time.Sleep(10 * ttl)
		require.Len(t, l.Locks(9), 1)
		require.True(t, l.Locks(9)[0].Lingering)
		again := comes(t, l, two)
		require.True(t, again.held.Handoff())
		begin := time.Now()
		from := comes(t, other, two)
		require.Equal(t, "in", from.state(), "the idle one went back")
		require.Zero(t, time.Since(begin))
		leaves(again, from)
		leaves(comes(t, l)) // own idle permits keep nobody out either
	}, wllock.WithLinger(time.Hour))
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
								_ = l.Do(ctx, "n", "k", takes(stays+time.Duration(i)*time.Millisecond), append(more, wllock.Permits(5))...)
								time.Sleep(time.Millisecond)
							}
						})
					}
				}
			}
			for range 5 {
				for _, l := range all {
					time.Sleep(stays / 2)
					require.Less(t, elapsed(func() { require.NoError(t, l.Do(ctx, "n", "k", nothing)) }), 2*stays)
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
	for name, opt := range map[string]wllock.CallOption{"any lease": forever, "its own lease": wllock.WithHoldAtLeast(1)} {
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
				l, other := lockerOn(t, d, wllock.WithMaxHandoffs(0)), lockerOn(t, b)
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
		scene(t, when, func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
			b.Partition(true)
			permit := comes(t, l, two, forever)
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
		}, wllock.WithOutage(wllock.LocalOnly))
	}
}

// What a drain has got without a lease is of no use when the backend is back before its permits are gone.
func TestDrainIsNotAdmittedWithoutALeaseAfterTheOutage(t *testing.T) { // rules P6 and O4
	scene(t, "another process has the lock", func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		other := lockerOn(t, b)
		b.Partition(true)
		permit := comes(t, l, two, forever)
		time.Sleep(2 * ttl)
		require.Equal(t, "in", permit.state())
		require.True(t, permit.held.Degraded())
		writer := comes(t, l)
		time.Sleep(ttl)
		b.Partition(false)
		time.Sleep(2 * ttl)
		elsewhere := comes(t, other)
		leaves(permit)
		time.Sleep(ttl)
		require.Equal(t, []string{"in", "waiting"}, are(elsewhere, writer))
		leaves(elsewhere)
		require.Equal(t, "in", writer.state())
		require.False(t, writer.held.Degraded())
		leaves(writer)
		time.Sleep(ttl)
		nothingLeft(t, b, l, other)
	}, wllock.WithOutage(wllock.LocalOnly))
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
		scene(t, state, func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
			other := lockerOn(t, b)
			own := comes(t, l, two, forever)
			writer := comes(t, l, wllock.WithWait(ttl))
			elsewhere := comes(t, other, two, forever)
			require.Equal(t, []string{"waiting", "waiting"}, are(writer, elsewhere))
			end(l, writer)
			require.Equal(t, []string{state, "in"}, are(writer, elsewhere))
			if state == "closed" {
				require.Equal(t, "closed", own.state())
			} else {
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
		pair(t, name, func(t *testing.T, l, other *wllock.Locker, _ *memlock.Backend) {
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
		})
	}
}

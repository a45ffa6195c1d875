package redislock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
)

// conventional is a client of the common convention, by hand: SET key unique NX PX, and DEL if the value is its own.
type conventional struct {
	c   *redis.Client
	key string
}

var ownDel = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

func (c conventional) lock(ctx context.Context) bool {
	return c.c.SetNX(ctx, c.key, "unique", 5*time.Second).Val()
}

func (c conventional) unlock(ctx context.Context) bool {
	n, _ := ownDel.Run(ctx, c.c, []string{c.key}, "unique").Int()
	return n == 1
}

func TestInteropEachRespectsTheOther(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	u, other := newUser(t, open(t, s.Addr)), conventional{s.Client(), key(t)}

	l := u.lease(key(t))
	require.False(t, other.lock(t.Context()), "it must see our lock")
	release(t, l)

	require.True(t, other.lock(t.Context()), "our release must free the key")
	_, _, err := u.enter(t.Context(), key(t), noWait)
	require.ErrorIs(t, err, distributed.ErrHeld)
	p := u.place(key(t))
	time.Sleep(200 * time.Millisecond)
	require.Empty(t, p.Granted())
	start := time.Now()
	require.True(t, other.unlock(t.Context()), "we must not touch its lock")
	l2 := granted(t, p)
	inTime(t, "after a foreigner's unlock", time.Since(start), 75*time.Millisecond)
	release(t, l2)
}

func TestInteropForeignTypesAreRespected(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	u := newUser(t, open(t, s.Addr))
	for _, mode := range []func(*distributed.Request){shared, func(*distributed.Request) {}} {
		s.Do("HSET", key(t), "redisson", "1") // as Redisson's locks are
		_, _, err := u.enter(t.Context(), key(t), noWait, mode)
		require.ErrorIs(t, err, distributed.ErrHeld)
		p := u.place(key(t), mode)
		time.Sleep(100 * time.Millisecond)
		require.Empty(t, p.Granted())
		require.Equal(t, "1", s.Do("HGET", key(t), "redisson"))
		s.Do("DEL", key(t))
		release(t, granted(t, p))
	}
}

// TestInteropAnyForeignValueIsRespected: "-" once meant "no lease to release" to enter, which then took a value that
// began with it for that lease.
func TestInteropAnyForeignValueIsRespected(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	u := newUser(t, open(t, s.Addr))
	for _, value := range []string{"-", "-Zq0base64url", "", "0", "1795245543793029", "wllock", "wllock-like:x:a:1:b:2"} {
		for _, state := range []string{"", "1795245543793029", "1795245543793029999 1 0"} { // helper keys of ours are left
			s.Do("SET", key(t), value)
			if state != "" {
				s.Do("SET", keysOf(key(t), "")[1], state)
			}
			for _, mode := range []func(*distributed.Request){shared, func(*distributed.Request) {}} {
				_, _, err := u.enter(t.Context(), key(t), noWait, mode)
				require.ErrorIs(t, err, distributed.ErrHeld, value)
				require.Equal(t, value, s.Do("GET", key(t)))
			}
			s.Do("DEL", key(t), keysOf(key(t), "")[1])
		}
	}
}

// TestInteropGapGivesEachItsShare: two of ours queue without end, a foreigner polls. With the gap both sides acquire the lock.
func TestInteropGapGivesEachItsShare(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const gap, run = 10 * time.Millisecond, 1500 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), run)
	defer cancel()
	var wg sync.WaitGroup
	var ours, theirs atomic.Int64
	var inside atomic.Int32
	enter := func() { require.Equal(t, int32(1), inside.Add(1), "two inside at once") }
	for range 2 {
		u := newUser(t, open(t, s.Addr, WithInteropGap(gap)))
		wg.Go(func() {
			for ctx.Err() == nil {
				l := u.get(key(t))
				enter()
				ours.Add(1)
				inside.Add(-1)
				_ = l.Release(context.Background())
			}
		})
	}
	other := conventional{s.Client(), key(t)}
	wg.Go(func() {
		for ctx.Err() == nil {
			if other.lock(context.Background()) {
				enter()
				theirs.Add(1)
				inside.Add(-1)
				other.unlock(context.Background())
			}
			time.Sleep(2 * time.Millisecond)
		}
	})
	wg.Wait()
	t.Logf("in %v: ours %d, theirs %d", run, ours.Load(), theirs.Load())
	require.Greater(t, ours.Load(), int64(10))
	require.Greater(t, theirs.Load(), int64(10))
}

// TestGapCostsAHandOverNoMoreThanItself: the head of the queue is notified when the lock is released, also when an Enter does it.
func TestGapCostsAHandOverNoMoreThanItself(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const gap = 20 * time.Millisecond
	ttl := 5 * time.Second
	a := newUser(t, open(t, s.Addr, WithInteropGap(gap))).lasting(ttl)
	b := newUser(t, open(t, s.Addr, WithInteropGap(gap))).lasting(ttl)
	for name, hand := range map[string]func(l *lease) distributed.Place{
		"leave": func(l *lease) distributed.Place { release(t, l); return nil },
		"enter": func(l *lease) distributed.Place {
			return a.place(key(t), func(r *distributed.Request) { r.Prev = l })
		},
	} {
		var worst time.Duration
		for range 5 {
			l := ours(a.get(key(t)))
			p := b.place(key(t))
			start := time.Now()
			pa := hand(l)
			lb := granted(t, p)
			worst = max(worst, time.Since(start))
			release(t, lb)
			if pa != nil {
				release(t, granted(t, pa))
			}
			time.Sleep(2 * gap)
		}
		t.Logf("%s: worst hand-over %v", name, worst)
		if worst > gap+200*time.Millisecond {
			t.Errorf("%s: the gap of %v took %v", name, gap, worst)
		}
	}
}

func TestGapBelowAMillisecondIsOne(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b, err := New(s.Client(), WithInteropGap(500*time.Microsecond))
	require.NoError(t, err)
	defer b.Close()
	l := newUser(t, b).lasting(5 * time.Second).lease(key(t))
	p := newUser(t, b).lasting(5 * time.Second).place(key(t))
	release(t, l)
	require.NotNil(t, p)
	v := s.Do("GET", keysOf(key(t), "")[1])
	require.Contains(t, v, " ", "the gap is off, and nobody said so")
	release(t, granted(t, p))
}

// TestGapOutlivesAHeadThatLeaves: the next one is the head then, and is notified when the lock may be taken.
func TestGapOutlivesAHeadThatLeaves(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const gap = 50 * time.Millisecond
	b := open(t, s.Addr, WithInteropGap(gap))
	ttl := 5 * time.Second
	l := newUser(t, b).lasting(ttl).lease(key(t))
	head, next := newUser(t, b).lasting(ttl).place(key(t)), newUser(t, b).lasting(ttl).place(key(t))
	start := time.Now()
	release(t, l)
	require.NoError(t, head.Leave(t.Context()))
	l = ours(granted(t, next))
	inTime(t, "granted", time.Since(start), gap)
	require.GreaterOrEqual(t, time.Since(start), gap-time.Millisecond, "but not before")
	release(t, l)
}

// TestGapEndsThoughTheClockIsSetBack: the end of the gap was noted by a clock that is set back afterwards.
func TestGapEndsThoughTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const gap = 250 * time.Millisecond // longer than a busy machine takes to read the note
	u := newUser(t, open(t, s.Addr, WithInteropGap(gap))).lasting(5 * time.Second)
	l := u.lease(key(t))
	p := newUser(t, u.b).lasting(5 * time.Second).place(key(t))
	state := keysOf(key(t), "")[1]
	release(t, l)
	noted, _ := s.Do("GET", state).(string)
	words := strings.Fields(noted)
	require.Len(t, words, 5, noted)
	free, err := strconv.ParseInt(words[2], 10, 64)
	require.NoError(t, err)
	s.Do("SET", state, fmt.Sprintf("%s %s %d", words[0], words[1], free+time.Hour.Milliseconds()))
	start := time.Now()
	l2 := granted(t, p)
	inTime(t, "after the clock was set back", time.Since(start), 2*gap)
	release(t, l2)
	s.Do("SET", state, fmt.Sprintf("%s 0 %d", words[0], free+time.Hour.Milliseconds()))
	start = time.Now()
	release(t, u.get(key(t)))
	inTime(t, "with nobody queued", time.Since(start), 2*gap)
}

// Whatever else stands in the lock's key is named to those whom it keeps out: a lock of another library, a cache under the same name.
func TestAForeignValueIsNamed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	l, err := wllock.New("shop", b)
	require.NoError(t, err)
	defer l.Close(t.Context())
	for want, put := range map[string][]any{
		"a client that is not wllock, with a string of 5 bytes":                    {"SET", "shop:product:1", "token", "PX", 60_000},
		"a client that is not wllock, with a string of 9 bytes that never expires": {"SET", "shop:product:2", `{"qty":3}`},
		"a client that is not wllock, with a value that is no string":              {"RPUSH", "shop:product:3", "x"},
	} {
		s.Do(put...)
		key := strings.TrimPrefix(put[1].(string), "shop:product:")
		err := l.Do(t.Context(), "product", key, func(context.Context) error { return nil }, wllock.NoWait())
		require.ErrorIs(t, err, wllock.ErrHeld)
		var e *wllock.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, want, e.Holder)
		p := newUser(t, b).place(put[1].(string)) // a caller that waits has it from there
		require.Equal(t, want, p.(distributed.HolderTeller).Holder())
	}
}

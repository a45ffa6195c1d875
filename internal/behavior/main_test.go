package behavior

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testlocker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = testlocker.TTL

var (
	newLocker = testlocker.New
	lockerOn  = testlocker.On
	hold      = testlocker.Hold
	nothing   = testlocker.Nothing
	never     = testlocker.Never
	lostAfter = testlocker.LostAfter

	two, three = wllock.Permits(2), wllock.Permits(3)
	forever    = wllock.WithLockTimeMax(0)
)

// keys are exclusive resources of the name n; a key that begins with ~ is shared.
func keys(all ...string) (r []wllock.Resource) {
	for _, key := range all {
		exclusive := strings.TrimPrefix(key, "~")
		r = append(r, wllock.Resource{Name: "n", Key: exclusive, Shared: key != exclusive})
	}
	return r
}

// free checks that nobody in any process holds the keys.
func free(t *testing.T, l *wllock.Locker, b distributed.Backend, all ...string) {
	t.Helper()
	other := lockerOn(t, b)
	for _, key := range all {
		require.NoError(t, l.Do(t.Context(), "n", key, nothing, wllock.NoWait(), wllock.SyncRelease()), key)
		require.NoError(t, other.Do(t.Context(), "n", key, nothing, wllock.NoWait(), wllock.SyncRelease()), key)
	}
	require.NoError(t, other.Close(t.Context()))
	require.Zero(t, l.Stats().Total.Held)
}

// refused checks that err is an *Error that Is reason, and that no function was run.
func refused(t *testing.T, err, reason error) *wllock.Error {
	t.Helper()
	require.ErrorIs(t, err, reason)
	e := asError(t, err)
	require.False(t, e.Ran)
	require.Equal(t, e.Waited, e.LocalWait+e.DistributedWait)
	return e
}

// errorOf is refused, for the key n:key.
func errorOf(t *testing.T, err, reason error, key string) *wllock.Error {
	t.Helper()
	e := refused(t, err, reason)
	require.Equal(t, "test:n:"+key, e.Key)
	return e
}

// refusal is refused, by this tier.
func refusal(t *testing.T, err, reason error, tier wllock.Tier) *wllock.Error {
	t.Helper()
	e := refused(t, err, reason)
	require.Equal(t, tier, e.Tier)
	return e
}

func asError(t *testing.T, err error) *wllock.Error {
	t.Helper()
	e, ok := errors.AsType[*wllock.Error](err)
	require.True(t, ok, "%v", err)
	return e
}

// do is a Do of one key, or a DoAll of several.
func do(ctx context.Context, l *wllock.Locker, all []wllock.Resource, fn wllock.Func, opts ...wllock.CallOption) error {
	if len(all) == 1 {
		return l.Do(ctx, all[0].Name, all[0].Key, fn, opts...)
	}
	return l.DoAll(ctx, all, fn, opts...)
}

// inside runs fn with the locks of the keys.
func inside(t *testing.T, l *wllock.Locker, all []wllock.Resource, fn func(context.Context), opts ...wllock.CallOption) {
	t.Helper()
	require.NoError(t, do(t.Context(), l, all, func(ctx context.Context) error { fn(ctx); return nil }, opts...))
}

// acquire acquires the lock n:key.
func acquire(t *testing.T, l *wllock.Locker, key string, opts ...wllock.CallOption) *wllock.Lock {
	t.Helper()
	k, err := l.Acquire(t.Context(), "n", key, opts...)
	require.NoError(t, err)
	return k
}

// loses lets the backend lose the lock n:key, and waits for the end of its context.
func loses(ctx context.Context, b *memlock.Backend, key string) {
	b.Expire("test:n:" + key)
	<-ctx.Done()
}

// losing is a function whose lock n:key is lost, and that ends with its context.
func losing(b *memlock.Backend, key string) wllock.Func {
	return func(ctx context.Context) error {
		loses(ctx, b, key)
		return nil
	}
}

// started starts a call for the keys, in a synctest bubble, and returns its result.
func started(l *wllock.Locker, all []wllock.Resource, fn wllock.Func, opts ...wllock.CallOption) <-chan error {
	result := make(chan error, 1)
	go func() { result <- do(context.Background(), l, all, fn, opts...) }()
	synctest.Wait()
	return result
}

// guest is a caller for the key n:k on a goroutine of its own, which stays inside until it is told to leave.
type guest struct {
	t     *testing.T
	end   context.CancelFunc // of its context
	leave chan struct{}
	is    atomic.Value // waiting, in, out, or why it did not get in or had to leave
	err   error
	held  *wllock.Held
	fence uint64
}

// comes lets a guest ask, in a synctest bubble, and returns when it is inside, waits, or was refused.
func comes(t *testing.T, l *wllock.Locker, opts ...wllock.CallOption) *guest {
	g := &guest{t: t, leave: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	g.end = cancel
	g.is.Store("waiting")
	go func() {
		defer cancel()
		g.err = l.Do(ctx, "n", "k", g.stay, opts...)
		g.is.Store(outcomeWord(g.err))
	}()
	synctest.Wait()
	return g
}

func (g *guest) stay(ctx context.Context) error {
	g.held, _ = wllock.HeldFrom(ctx)
	g.fence = g.held.Fence()
	g.is.Store("in")
	select {
	case <-g.leave:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func outcomeWord(err error) string {
	for word, of := range map[string]error{"held": wllock.ErrHeld, "lost": wllock.ErrLeaseLost, "full": wllock.ErrQueueFull,
		"timeout": wllock.ErrWaitTimeout, "closed": wllock.ErrClosed, "canceled": context.Canceled} {
		if errors.Is(err, of) {
			return word
		}
	}
	if err != nil {
		return err.Error()
	}
	return "out"
}

func (g *guest) state() string {
	synctest.Wait()
	return g.is.Load().(string)
}

// leaves lets guests that are inside leave, one after the other.
func leaves(all ...*guest) {
	for _, g := range all {
		require.Equal(g.t, "in", g.state())
		close(g.leave)
		require.Equal(g.t, "out", g.state())
	}
}

// are is what the guests do.
func are(all ...*guest) (words []string) {
	for _, g := range all {
		words = append(words, g.state())
	}
	return words
}

// nothingLeft requires that the Lockers, and after their TTL the backend, know of no key.
func nothingLeft(t *testing.T, b *memlock.Backend, all ...*wllock.Locker) {
	t.Helper()
	synctest.Wait()
	for _, l := range all {
		require.Empty(t, l.Locks(9))
		total := l.Stats().Total
		require.Zero(t, total.Held)
		require.Zero(t, total.Waiting)
	}
	page, _, err := b.List(t.Context(), "test:", "", 9)
	require.NoError(t, err)
	require.Empty(t, page)
}

// takes is a function that takes d of the clock.
func takes(d time.Duration) wllock.Func {
	return func(context.Context) error { time.Sleep(d); return nil }
}

// elapsed is how long f takes.
func elapsed(f func()) time.Duration {
	begin := time.Now()
	f()
	return time.Since(begin)
}

// several lets so many guests come, one after the other.
func several(t *testing.T, n int, l *wllock.Locker, opts ...wllock.CallOption) (all []*guest) {
	for range n {
		all = append(all, comes(t, l, opts...))
	}
	return all
}

// bubble runs a case on the clock of testing/synctest.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// scene is a case with a Locker of its own, on the clock of testing/synctest.
func scene(t *testing.T, name string, test func(t *testing.T, l *wllock.Locker, b *memlock.Backend), opts ...wllock.Option) {
	bubble(t, name, func(t *testing.T) {
		l, b := newLocker(t, opts...)
		test(t, l, b)
	})
}

// pair is a scene with a second Locker over the backend, as another process has it. Nothing is left of it in the end.
func pair(t *testing.T, name string, test func(t *testing.T, l, other *wllock.Locker, b *memlock.Backend), opts ...wllock.Option) {
	scene(t, name, func(t *testing.T, l *wllock.Locker, b *memlock.Backend) {
		other := lockerOn(t, b)
		test(t, l, other, b)
		nothingLeft(t, b, l, other)
	}, opts...)
}

// within is the context of the test for d.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// ended is a context that has ended.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// heldIn is the innermost lock of ctx.
func heldIn(ctx context.Context) *wllock.Held {
	held, _ := wllock.HeldFrom(ctx)
	return held
}

// logTo has a Locker log as text.
func logTo(w io.Writer) wllock.Option {
	return wllock.WithLogger(slog.New(slog.NewTextHandler(w, nil)))
}

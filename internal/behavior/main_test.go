package behavior

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
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

// errorOf checks an error of DoAll that says that a key was not acquired.
func errorOf(t *testing.T, err, reason error, key string) *wllock.Error {
	t.Helper()
	require.ErrorIs(t, err, reason)
	var e *wllock.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "test:n:"+key, e.Key)
	require.False(t, e.Ran)
	return e
}

// refusal asserts that err is an *Error that Is sentinel, from this tier, and that fn was not run.
func refusal(t *testing.T, err, sentinel error, tier wllock.Tier) *wllock.Error {
	t.Helper()
	require.ErrorIs(t, err, sentinel)
	var e *wllock.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, tier, e.Tier)
	require.False(t, e.Ran)
	require.Equal(t, e.Waited, e.LocalWait+e.DistributedWait)
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

type (
	item  = wllock.Item[int, int]
	batch = []*item
)

// doubling answers each item with twice its argument.
func doubling(_ context.Context, b batch) error {
	for _, i := range b {
		i.Result = 2 * i.Arg
	}
	return nil
}

// desk is a batch guard for the key n:k that notes which batches it has run, and asks work.
type desk struct {
	call func(context.Context, int) (int, error)
	work func(context.Context, batch) error

	mu      sync.Mutex
	batches []string // the arguments of each
	fences  []uint64
}

func (d *desk) run(ctx context.Context, b batch) error {
	var args []int
	for _, i := range b {
		args = append(args, i.Arg)
	}
	d.note(fmt.Sprint(args))
	d.mu.Lock()
	d.fences = append(d.fences, heldIn(ctx).Fence())
	d.mu.Unlock()
	return d.work(ctx, b)
}

func (d *desk) note(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.batches = append(d.batches, what)
}

func (d *desk) noted() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.batches
}

// comes lets one caller begin, in a synctest bubble, and returns when it waits or is back.
func (d *desk) comes(ctx context.Context, arg int) *customer {
	c := &customer{arg: arg}
	go func() {
		defer c.gone.Store(true)
		defer func() {
			if c.panicked = recover(); c.panicked != nil {
				c.back.Store(true)
			}
		}()
		c.result, c.err = d.call(ctx, arg)
		c.back.Store(true)
	}()
	synctest.Wait()
	return c
}

// come lets callers with the arguments from to to begin, one after the other.
func (d *desk) come(ctx context.Context, from, to int) (all []*customer) {
	for arg := from; arg <= to; arg++ {
		all = append(all, d.comes(ctx, arg))
	}
	return all
}

func newDesk(l *wllock.Locker, work func(context.Context, batch) error, opts ...wllock.CallOption) *desk {
	d := &desk{work: work}
	d.call = wllock.WrapBatch(l, "n", func(int) string { return "k" }, d.run, opts...)
	return d
}

// customer is a caller of a batch guard on its own goroutine.
type customer struct {
	arg, result int
	err         error
	panicked    any
	back        atomic.Bool // the call has returned, or panicked
	gone        atomic.Bool // the goroutine has ended; without back, by Goexit
}

// served reports whether each caller has got its own result.
func served(all ...*customer) bool {
	synctest.Wait()
	for _, c := range all {
		if !c.back.Load() || c.err != nil || c.panicked != nil || c.result != 2*c.arg {
			return false
		}
	}
	return true
}

// ranWith returns the error of a caller whose batch has begun, or nil.
func ranWith(c *customer, want error) error {
	synctest.Wait()
	e, ok := errors.AsType[*wllock.Error](c.err)
	switch {
	case !c.back.Load():
		return errors.New("not back")
	case !ok || !e.Ran || !errors.Is(c.err, want):
		return fmt.Errorf("%v; want %v, with Ran", c.err, want)
	case c.result != 0:
		return fmt.Errorf("result %d", c.result)
	}
	return nil
}

// line is a batch guard with the callers 1 to n, who wait until release, which returns when all that could happen has.
func line(t *testing.T, l *wllock.Locker, n int, work func(context.Context, batch) error, opts ...wllock.CallOption) (
	d *desk, all []*customer, release func()) {
	leave := hold(t, l, "n", "k")
	d = newDesk(l, work, opts...)
	return d, d.come(t.Context(), 1, n), func() {
		leave()
		synctest.Wait()
	}
}

// doublingSlowly is work that takes d of the clock, and does not end sooner.
func doublingSlowly(d time.Duration) func(context.Context, batch) error {
	return func(ctx context.Context, b batch) error { time.Sleep(d); return doubling(ctx, b) }
}

// batchOf runs one batch of the arguments from 1 to n.
func batchOf(t *testing.T, n int, work func(context.Context, batch) error) []*customer {
	t.Helper()
	l, _ := newLocker(t)
	d, all, release := line(t, l, n, work)
	release()
	require.Len(t, d.noted(), 1)
	require.NoError(t, l.Do(t.Context(), "n", "k", nothing, wllock.NoWait()), "the lock is free")
	return all
}

// logTo has a Locker log as text.
func logTo(w io.Writer) wllock.Option {
	return wllock.WithLogger(slog.New(slog.NewTextHandler(w, nil)))
}

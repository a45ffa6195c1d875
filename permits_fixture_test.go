package wllock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

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

package zklock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/zktest"
)

// soon is how long a parent that is not used is kept in tests.
const soon = 10 * time.Millisecond

// A node that everybody has left goes: a container by the server's doing, which looks every 500 ms here, and another one by ours.
func TestUnusedKeysLeaveNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]Option{
		"containers": func(*settings) {}, "none": func(s *settings) { s.persist, s.sweepPause = true, soon },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := newRoot()
			b := open(t, zktest.Shared(t).Addr, root, change)
			for _, key := range []string{"a", "a/b", "..", "\U0001f512"} {
				ask := asker(t, b, key)
				release(t, ask.Lease("i"))
				release(t, ask.Lease("i"))
			}
			left(t, zktest.Shared(t).Addr, root, 0)
			release(t, asker(t, b, "a").Lease("i"))
		})
	}
}

// Keys that were used once go by our own doing: a server deletes 167 containers a second at most, and this one none.
func TestKeysOfOneUseAreDeletedByUs(t *testing.T) {
	testscope.Long(t, "starts a server")
	t.Parallel()
	zktest.Shared(t)
	private, root := zktest.Start(t, "-Dznode.container.checkIntervalMs=3600000"), newRoot()
	b := open(t, private.Addr, root, func(s *settings) { s.sweepPause = time.Second }) // longer than any is held
	for i := range 50 {
		release(t, asker(t, b, fmt.Sprint("k", i)).Lease("a", lasting(long)))
	}
	left(t, private.Addr, root, 0)
}

// While parents go, requests find them missing, and create them again.
func TestParentsGoWhileKeysAreUsed(t *testing.T) {
	t.Parallel()
	b := open(t, zktest.Shared(t).Addr, newRoot(), func(s *settings) { s.persist, s.sweepPause = true, soon })
	ask, last := asker(t, b, "k"), uint64(0)
	for start := time.Now(); time.Since(start) < time.Second; {
		l := ask.Lease("i")
		n := fence(t, l)
		require.Greater(t, n, last)
		last = n
		release(t, l)
	}
}

// What a lease and a place leave in memory.
func TestNothingStaysInMemory(t *testing.T) {
	t.Parallel()
	b := open(t, zktest.Shared(t).Addr, newRoot())
	ask := asker(t, b, "k")
	for range 20 {
		l := ask.Lease("a")
		p, left := ask.Place("b"), ask.Place("c")
		require.NoError(t, left.Leave(t.Context()))
		release(t, l)
		release(t, granted(t, p))
	}
	s := b.sessions.All()[0]
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return b.engine.Idle() && len(s.watched) <= 1 && len(s.armed) <= 1 // the key's own, until its next change
	}, patience, 10*time.Millisecond)
}

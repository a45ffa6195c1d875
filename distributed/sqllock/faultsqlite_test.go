package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/internal/testscope"
)

// lockedFor is how long another process locks the file.
var lockedFor = testscope.Scale(3*time.Second, 10*time.Second)

// Another process has the file locked for as long as a lease lasts, or longer: calls are answered by their deadlines, a lease that
// cannot be renewed is reported lost in time, one that lasts longer is kept, and so is its place in the queue.
func TestFileIsLockedByAnotherProcess(t *testing.T) {
	testscope.Long(t, "takes 3 s")
	t.Parallel()
	d := migrated(t, sqliteIn(t))
	near, far, short, long := d.backend(t, nil), d.backend(t, nil), newName("k"), newName("k")
	brief := acquired(t, near, request(short))
	kept := acquired(t, near, request(long, safely))
	first := fence(t, kept)
	p := place(t, far, request(long, safely))
	blocker := startChild(t, "block", d.where(), short, lockedFor)
	blocker.says("locked")
	start := time.Now()
	for _, budget := range []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		asked := time.Now()
		_, _, err := far.Enter(ctx, request(short))
		cancel()
		require.True(t, errors.Is(err, distributed.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded), "%v", err)
		within(t, "an Enter with a locked file", time.Since(asked), budget)
	}
	lost(t, brief)
	within(t, "the report of a lease that cannot be renewed", time.Since(start), faultTTL)
	blocker.says("unlocked")
	require.False(t, distributed.Over(time.Now(), kept.Until()))
	release(t, kept)
	next := granted(t, p)
	require.NotNil(t, next)
	require.Greater(t, fence(t, next), first)
	release(t, next)
	release(t, acquired(t, far, request(short)))
}

// A file that others write to is busy, and not away: a caller without a limit of its own waits, also when a single try would be in vain,
// in line for it as well as for the calls of its own process. One with NoWait does not.
func TestBusyFileIsWaitedFor(t *testing.T) {
	testscope.Long(t, "its leases last for a second")
	t.Parallel()
	d := migrated(t, sqliteIn(t))
	b := d.backend(t, nil, sqllock.WithParallel(1))
	blocker, err := d.pool(t, nil).Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, blocker.Close()) }()
	_, err = blocker.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	tries := make(chan struct{}, 100)
	defer b.Observe(func(distributed.Exchange) { tries <- struct{}{} })()
	second := lasting(time.Second)
	entered := make(chan error, 2)
	for range cap(entered) {
		go func() {
			l, _, err := b.Enter(t.Context(), request(newName("k"), second))
			if l != nil {
				_ = l.Release(t.Context())
			}
			entered <- err
		}()
	}
	for range 6 {
		select {
		case <-tries:
		case err := <-entered:
			t.Fatalf("%v while the file is busy", err)
		}
	}
	_, _, err = b.Enter(t.Context(), request(newName("k"), second, func(r *distributed.Request) { r.NoWait = true }))
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	_, err = blocker.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	for range cap(entered) {
		require.NoError(t, <-entered)
	}
}

func TestFileIsReadOnly(t *testing.T) {
	t.Parallel()
	d := migrated(t, sqliteIn(t))
	writable := d.backend(t, nil)
	key := newName("k")
	l := acquired(t, writable, request(key, safely))
	b := backendOn(t, poolOf(t, sqliteFile(d.file, "query_only(on)")), sqllock.SQLite)
	start := time.Now()
	_, _, err := b.Enter(t.Context(), request(newName("k")))
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorIs(t, err, distributed.ErrRefused)
	within(t, "the refusal of a request", time.Since(start), 0)
	require.ErrorIs(t, b.Ping(t.Context()), distributed.ErrRefused)
	release(t, l)
}

// The file may not grow, as on a full disk: new keys are refused, and what is there goes on.
func TestDiskIsFull(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	t.Parallel()
	d := migrated(t, sqliteIn(t))
	var pages int
	require.NoError(t, d.pool(t, nil).QueryRow("PRAGMA page_count").Scan(&pages))
	b := backendOn(t, poolOf(t, sqliteFile(d.file, fmt.Sprintf("max_page_count(%d)", pages))), sqllock.SQLite)
	key := newName("k")
	l := acquired(t, b, request(key, kept))
	var err error
	var more []distributed.Lease
	for n := 0; n < 1000 && err == nil; n++ {
		var one distributed.Lease
		if one, _, err = b.Enter(t.Context(), request(newName("a key that takes some room in the file "), safely)); one != nil {
			more = append(more, one)
		}
	}
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorIs(t, err, distributed.ErrRefused)
	claimed(t, l)
	time.Sleep(distributed.RenewInterval(keptTTL))
	require.False(t, distributed.Over(time.Now(), l.Until()), "it is renewed on a full disk")
	release(t, l)
	for _, one := range more {
		release(t, one)
	}
}

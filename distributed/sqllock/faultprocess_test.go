package sqllock_test

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testscope"
)

func TestKilledHolderIsFollowedWithinItsLease(t *testing.T) {
	testscope.Long(t, "kills processes, and waits for what they held")
	onEach(t, true, func(t *testing.T, d database) {
		key := newName("k")
		holder := startChild(t, "hold", d.where(), key, faultTTL)
		old, err := strconv.ParseUint(holder.says("held"), 10, 64)
		require.NoError(t, err)
		p := place(t, d.backend(t, nil), request(key))
		time.Sleep(faultTTL) // it was renewed
		holder.signal(syscall.SIGKILL)
		start := time.Now()
		l := granted(t, p)
		within(t, "kill -9 of a holder", time.Since(start), faultTTL+distributed.HeartbeatInterval(faultTTL))
		require.Greater(t, fence(t, l), old)
	})
}

// A permit whose process was killed is free again with its lease, and no other one before.
func TestKilledPermitIsFollowedWithinItsLease(t *testing.T) {
	testscope.Long(t, "kills processes, and waits for what they held")
	onEach(t, true, func(t *testing.T, d database) {
		key := newName("k")
		two := func(r *distributed.Request) { r.Limit = 2 }
		dead := startChild(t, "permit", d.where(), key, faultTTL)
		old, err := strconv.ParseUint(dead.says("held"), 10, 64)
		require.NoError(t, err)
		b := d.backend(t, nil)
		other := acquired(t, b, request(key, safely, shared, two))
		p, next := place(t, b, request(key, safely, shared, two)), place(t, b, request(key, safely, shared, two))
		time.Sleep(faultTTL) // it was renewed
		dead.signal(syscall.SIGKILL)
		start := time.Now()
		l := granted(t, p)
		within(t, "kill -9 of a permit's holder", time.Since(start), faultTTL+distributed.HeartbeatInterval(faultTTL))
		require.Greater(t, fence(t, l), old)
		require.Empty(t, next.Granted())
		release(t, other)
		release(t, granted(t, next))
		release(t, l)
	})
}

func TestKilledWaiterCostsItsPlaceAndNoMore(t *testing.T) {
	testscope.Long(t, "kills processes")
	onEach(t, true, func(t *testing.T, d database) {
		b, key := d.backend(t, nil), newName("k")
		l := acquired(t, b, request(key, safely))
		dead := startChild(t, "hold", d.where(), key, faultTTL)
		dead.says("queued")
		p := place(t, b, request(key, safely))
		dead.signal(syscall.SIGKILL)
		release(t, l)
		start := time.Now()
		release(t, granted(t, p))
		within(t, "kill -9 of the first waiter", time.Since(start), distributed.ClaimWindow(faultTTL)+distributed.HeartbeatInterval(faultTTL))
	})
}

// A process that stood still wakes up after its lease and writes before it looks at any clock: its store refuses the write.
func TestPausedHolderIsRefusedByTheStore(t *testing.T) {
	testscope.Long(t, "stops processes or servers, and waits")
	onEach(t, true, func(t *testing.T, d database) {
		b, key := d.backend(t, nil), newName("k")
		db := newStock(t, d, key)
		holder := startChild(t, "hold", d.where(), key, keptTTL)
		holder.says("held")
		holder.tell("write")
		require.Equal(t, "1 lost false", holder.says("wrote"), "while it holds the lock")
		p := place(t, b, request(key, safely))
		holder.signal(syscall.SIGSTOP)
		l := granted(t, p)
		require.Equal(t, int64(1), fencedWrite(t.Context(), db, key, fence(t, l)), "its successor")
		holder.signal(syscall.SIGCONT)
		holder.tell("write")
		require.Equal(t, "0 lost true", holder.says("wrote"), "after it has stood still")
		release(t, l)
	})
}

package sqllock_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// A holder in another process that lives loses the lock to a Break: its writes are refused at once, by its fence, and it learns
// at its next look, long before its next renewal.
func TestBreakOfALiveHolderInAnotherProcess(t *testing.T) {
	onEach(t, true, func(t *testing.T, d database) {
		key := newName("k")
		db := newStock(t, d, key)
		holder := startChild(t, "hold", d.where(), key, safeTTL)
		old, err := strconv.ParseUint(holder.says("held"), 10, 64)
		require.NoError(t, err)
		p := place(t, d.backend(t, nil), request(key, safely))
		operator := d.backend(t, nil)
		found, err := operator.Inspect(t.Context(), key)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(found.Holder(), "child"), found.Holder())
		start := time.Now()
		record, err := operator.Break(t.Context(), found, "operator", "it is stuck")
		require.NoError(t, err)
		l := granted(t, p)
		within(t, "the next holder", time.Since(start), time.Second)
		require.Greater(t, record.Fence, old)
		n := fence(t, l)
		require.Greater(t, n, record.Fence)
		require.Equal(t, int64(1), fencedWrite(t.Context(), db, key, n), "the next holder")
		said := ""
		for said != "0 lost true" {
			holder.tell("write")
			said = holder.says("wrote")
			require.Contains(t, []string{"0 lost false", "0 lost true"}, said)
			require.Less(t, time.Since(start), forever/2, "the broken holder has not noticed")
			time.Sleep(10 * time.Millisecond)
		}
		within(t, "the broken holder's notice", time.Since(start), time.Second)
		_, err = operator.Break(t.Context(), found, "operator", "once more")
		require.ErrorIs(t, err, distributed.ErrNotHeld)
		release(t, l)
	})
}

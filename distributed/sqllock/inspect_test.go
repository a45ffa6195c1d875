package sqllock

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

func inspected(t *testing.T, b *Backend, key string) distributed.Inspection {
	t.Helper()
	found, err := b.Inspect(t.Context(), key)
	require.NoError(t, err)
	return found
}

func listed(t *testing.T, b *Backend, prefix string, limit int) (keys []string) {
	t.Helper()
	for cursor := ""; ; {
		page, next, err := b.List(t.Context(), prefix, cursor, limit)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), limit)
		for _, found := range page {
			keys = append(keys, found.Key)
		}
		if next == "" {
			slices.Sort(keys)
			return keys
		}
		cursor = next
	}
}

// Who holds and who waits costs one statement, and so does a page of a list.
func TestInspectionIsOneStatement(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b, observer := d.backend(t), d.backend(t)
		l, other := enter(t, b, "shop:a:1", reading), enter(t, b, "shop:a:1", reading, by("other"))
		p := queue(t, d.backend(t), "shop:a:1", by("waiter"))
		var ours atomic.Int64
		d.wire.logTo(func(text string) {
			if strings.Contains(text, "alike") || strings.Contains(text, "span") {
				ours.Add(1)
			}
		})
		found := inspected(t, observer, "shop:a:1")
		require.Equal(t, "instance and 1 more", found.Holder())
		require.Equal(t, "waiter", found.Waiters[0].Instance)
		require.EqualValues(t, 1, ours.Load())
		page, _, err := observer.List(t.Context(), "shop:", "", 10)
		require.NoError(t, err)
		require.Len(t, page, 1)
		require.Equal(t, "instance and 1 more", page[0].Holder())
		require.Equal(t, 1, page[0].MoreWaiters)
		require.EqualValues(t, 2, ours.Load())

		free(t, l) // the second reader goes on without the first
		page, _, err = observer.List(t.Context(), "shop:", "", 10)
		require.NoError(t, err)
		require.Equal(t, "other", page[0].Holder())
		require.Equal(t, "other", inspected(t, observer, "shop:a:1").Holder())
		require.NoError(t, p.Leave(t.Context()))
		free(t, other)
		require.EqualValues(t, 4, ours.Load(), "nothing else asks")
	})
}

// A list has the keys that are stored as hashes, and passes over the rows of locks that are free.
func TestListOfLongKeysAmongUnusedOnes(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		var want []string
		for i := range 30 {
			key := fmt.Sprintf("shop:a:%d", i)
			switch i % 3 {
			case 1:
				key += strings.Repeat("ü", 150)
			case 2:
				free(t, enter(t, b, key))
				continue
			}
			enter(t, b, key)
			want = append(want, key)
		}
		enter(t, b, "shop:b:1")
		enter(t, b, "shop:b:1"+strings.Repeat("b", 300))
		enter(t, b, "#shop:1")
		slices.Sort(want)
		for _, limit := range []int{1, 3, 100} {
			require.Equal(t, want, listed(t, b, "shop:a:", limit), "pages of %d", limit)
		}
		require.Equal(t, []string{"#shop:1"}, listed(t, b, "#", 10))
		require.Len(t, listed(t, b, "", 10), len(want)+3)
		_, _, err := b.List(t.Context(), "shop:", "", 0)
		require.ErrorContains(t, err, "want 1 or more")
	})
}

// A page looks at a bounded number of rows, so that a table of unused ones is passed over piece by piece.
func TestPageIsBounded(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		fill(t, b, 2*scannedRows+500, time.Hour)
		enter(t, b, "order:z")
		page, next, err := b.List(t.Context(), "order:", "", 10)
		require.NoError(t, err)
		require.Empty(t, page)
		require.Equal(t, cursorOfNames+fmt.Sprintf("order:%06d", scannedRows-1), next)
		require.Equal(t, []string{"order:z"}, listed(t, b, "order:", 10))
	})
}

// A Break whose commit was not answered has ended the lease once, and says so.
func TestBreakIsRepeatedWithOneEffect(t *testing.T) {
	eachBackend(t, func(t *testing.T, d *database, b *Backend) {
		l := enter(t, b, "key")
		found := inspected(t, b, "key")
		require.Len(t, found.Holders, 1)
		broken := d.wire.breaksOnce("COMMIT", lostReply)
		record, err := b.Break(t.Context(), found, "me", "it is stuck")
		require.NoError(t, err)
		require.True(t, broken())
		now := inspected(t, b, "key")
		require.False(t, now.Held())
		require.Equal(t, record.Fence, now.Fence, "it was moved once")
		require.Equal(t, record.Fence, now.Broken.Fence)
		require.True(t, record.At.Equal(now.Broken.At))
		ended(t, l)
		_, err = b.Break(t.Context(), found, "me", "it is stuck")
		require.ErrorIs(t, err, distributed.ErrNotHeld)
	})
}

// The lease of a reader that has joined others ends at its next look, too, and not only at its next renewal.
func TestBrokenReaderLearnsSoon(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b, reader := d.backend(t), d.backend(t)
		first, second := enter(t, b, "key", reading), enter(t, reader, "key", reading)
		_, err := d.backend(t).Break(t.Context(), inspected(t, b, "key"), "me", "they are stuck")
		require.NoError(t, err)
		start := time.Now()
		ended(t, first)
		ended(t, second)
		require.Less(t, time.Since(start), 10*time.Second, "they are renewed after 10 s at the earliest")
	})
}

// The record outlives an early reaper, and is forgotten after a day.
func TestBreakIsRemembered(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t, WithReapAge(time.Hour))
		enter(t, b, "key")
		_, err := b.Break(t.Context(), inspected(t, b, "key"), "me", `it's "stuck"; über`)
		require.NoError(t, err)
		reapAfter := func(age time.Duration, left int) {
			aged(t, b, age)
			reap(t, b, left)
		}
		reapAfter(2*time.Hour, 1)
		kept := inspected(t, b, "key").Broken
		require.NotNil(t, kept)
		require.Equal(t, `it's "stuck"; über`, kept.Reason)
		require.Equal(t, "instance", kept.Holder)
		reapAfter(distributed.BrokenMemory, 0)
		require.Nil(t, inspected(t, b, "key").Broken)
	})
}

func TestRecordIsForgotten(t *testing.T) {
	at := time.UnixMicro(time.Now().UnixMicro())
	record := distributed.Breaking{At: at, By: "me", Reason: "it is stuck", Holder: "host\tand 1 more", Fence: 1 << 62}
	text := brokenText(&record, "id")
	require.Equal(t, &record, brokenOf(text, at.UnixMicro()))
	require.Nil(t, brokenOf(text, at.Add(distributed.BrokenMemory+time.Second).UnixMicro()))
	require.Nil(t, brokenOf("", at.UnixMicro()))
	require.Nil(t, brokenOf(strings.ReplaceAll(text, "T", "?"), at.UnixMicro()))
}

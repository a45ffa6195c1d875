package sqllock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// What is recorded beyond what is kept is trimmed by the way, of its own system only, and what is old goes with the reaper.
func TestRunsAreBounded(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		record := func(key string) {
			r := distributed.Run{Key: key, Instance: "web-1", Began: time.Now(), Result: distributed.RunOK}
			require.NoError(t, b.Record(t.Context(), r))
		}
		var rows []string
		for i := range distributed.MaxJobs + 50 {
			rows = append(rows, fmt.Sprintf("('shop:n:%04d', 0, '{}', 0, '{}', {now} - %d)", i, micros(time.Hour)+int64(i)))
		}
		run(t, b, "INSERT INTO {runs} (name, fence, latest, succeeded, success, update_time) VALUES "+strings.Join(rows, ","))
		record("bank:n:1")
		long := "shop:n:" + strings.Repeat("x", longestName)
		record(long)
		require.NoError(t, b.trim(t.Context(), "shop:n:0001"))
		require.NoError(t, b.trim(t.Context(), "bank:n:1"))
		require.Equal(t, distributed.MaxJobs+2, rowsOf(t, b, "runs"))
		require.NoError(t, b.trim(t.Context(), "shop:n:0001"))
		require.Equal(t, distributed.MaxJobs+2, rowsOf(t, b, "runs"))

		run(t, b, "UPDATE {runs} SET update_time = {now} - $1 WHERE name LIKE 'shop:%'", micros(distributed.RunMemory))
		reap(t, b, 0)
		require.Equal(t, 2, rowsOf(t, b, "runs"))
		for _, key := range []string{"bank:n:1", long} {
			all, err := b.Runs(t.Context(), key)
			require.NoError(t, err)
			require.Len(t, all, 1)
			require.Equal(t, key, all[0].Last.Key)
		}
	})
}

// Tables that an older version has made have none for runs: locks and the reaper do without, and the backend counts as available.
func TestLocksDoWithoutRuns(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		run(t, b, "DROP TABLE {runs}")
		failed := make(chan error, 100)
		t.Cleanup(b.Observe(func(e distributed.Exchange) {
			if e.Err != nil {
				failed <- e.Err
			}
		}))
		require.NoError(t, b.Ping(t.Context()))
		free(t, enter(t, b, "k"))
		reap(t, b, 1)
		_, err := b.Runs(t.Context(), "shop:")
		for _, err := range []error{err, b.Record(t.Context(), distributed.Run{Key: "shop:n:1", Instance: "web-1", Began: time.Now(), Result: "error"})} {
			require.ErrorIs(t, err, distributed.ErrRefused)
			require.ErrorContains(t, err, "run wllock migrate")
		}
		require.Empty(t, failed)
	})
}

package wllock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// Idle leases of this process are taken back by the first that asks. Those that ask at the same moment are not refused for it.
func TestNoWaitOfSeveralAfterALingeringLease(t *testing.T) { // rule P3
	const n, rounds = 4, 300
	l := lockerOn(t, memlock.New(), wllock.WithLinger(time.Hour))
	for round := range rounds {
		before := [][]wllock.CallOption{nil, {wllock.Shared()}, {wllock.Permits(n + 1)}}[round%3]
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing, before...))
		var start, all sync.WaitGroup
		start.Add(1)
		for range n {
			all.Go(func() {
				start.Wait()
				if err := l.Do(t.Context(), "n", "k", nothing, wllock.Permits(n), wllock.NoWait()); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		start.Done()
		all.Wait()
		if t.Failed() {
			return
		}
	}
}

package wllock_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestStatsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t)
		release := hold(t, l, "n", "k")
		go func() { _ = l.Do(context.Background(), "n", "k", nothing) }()
		synctest.Wait()
		s := l.Stats()
		require.EqualValues(t, 1, s.Names["n"].Held)
		require.EqualValues(t, 1, s.Names["n"].Waiting)
		release()
		synctest.Wait()
		s = l.Stats()
		require.Zero(t, s.Total.Held)
		require.Zero(t, s.Total.Waiting)
		require.EqualValues(t, 2, s.Total.Acquired)
		require.EqualValues(t, 1, s.Total.Handoffs)
	})
}

package parts

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

func TestFencesAreDrawnFromBlocks(t *testing.T) {
	var f Fences
	draw := func(want uint64) (low bool) {
		t.Helper()
		fence, ok, low := f.Draw()
		require.True(t, ok)
		require.Equal(t, want, fence)
		return low
	}
	none := func() {
		t.Helper()
		_, ok, _ := f.Draw()
		require.False(t, ok)
	}
	none()
	f.Open(100, 4)
	require.False(t, draw(100))
	require.True(t, draw(101), "half of the block is used")
	require.False(t, draw(102))
	require.False(t, draw(103))
	none()
	f.Open(100, 4) // an answer that was overtaken
	none()
	f.Open(200, 1)
	require.False(t, draw(200))
	none()
	f.Share(300)
	f.Open(400, 4) // an answer that comes late
	draw(300)
	draw(300)
	require.True(t, f.IsShared())
}

func TestBlockThatGoesOnKeepsTheRest(t *testing.T) {
	var f Fences
	f.Open(1, 2)
	f.Open(3, 2)
	for want := range uint64(4) {
		fence, ok, _ := f.Draw()
		require.True(t, ok)
		require.Equal(t, want+1, fence)
	}
	f.Open(10, 3)
	f.Draw()
	drawn, last := f.Close()
	require.Equal(t, []uint64{10, 12}, []uint64{drawn, last})
	_, ok, _ := f.Draw()
	require.False(t, ok, "it is being released")
}

func TestSharedLeaseFetchesItsFenceOnce(t *testing.T) {
	var f Fences
	f.Share(0)
	_, ok, _ := f.Draw()
	require.False(t, ok)
	for range 2 {
		asked := 0
		require.NoError(t, f.Refill(t.Context(), func() (uint64, uint64, error) { asked++; return 7, 1, nil }))
		fence, ok, _ := f.Draw()
		require.True(t, ok)
		require.Equal(t, uint64(7), fence)
		require.LessOrEqual(t, asked, 1)
	}
	require.NoError(t, f.Refill(t.Context(), nil), "there is nothing to ask for")
}

// Of those who ask at a time one asks the service; the others wait for it, as long as they have time.
func TestOneAsksForFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Fences
		asked, answer := 0, make(chan error)
		ask := func() (uint64, uint64, error) { asked++; return uint64(10 * asked), 3, <-answer }
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { assert.NoError(t, f.Refill(t.Context(), ask)) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, f.Refill(ctx, ask), distributed.ErrUnavailable)
		answer <- nil
		all.Wait()
		require.Equal(t, 1, asked)
		for range 3 {
			_, ok, _ := f.Draw()
			require.True(t, ok)
		}
		failed := make(chan error, 1)
		go func() { failed <- f.Refill(t.Context(), ask) }()
		synctest.Wait()
		all.Go(func() { assert.NoError(t, f.Refill(t.Context(), ask)) })
		synctest.Wait()
		answer <- distributed.ErrLeaseLost
		require.ErrorIs(t, <-failed, distributed.ErrLeaseLost)
		answer <- nil // whoever has waited asks by itself
		all.Wait()
		require.Equal(t, 3, asked)
	})
}

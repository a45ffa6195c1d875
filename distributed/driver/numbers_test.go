package driver

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

func TestFencesOfOneNumberComeBeforeThoseOfTheNext(t *testing.T) {
	n := Numbers{Name: "revision", Bits: 16}
	first, err := n.Block(7, false)
	require.NoError(t, err)
	permit, err := n.Block(7, true)
	require.NoError(t, err)
	next, err := n.Block(8, false)
	require.NoError(t, err)
	require.Greater(t, permit.First, first.First, "a reader may have seen the same number")
	require.Equal(t, first.First+first.Count, permit.First+permit.Count)
	require.Equal(t, next.First, first.First+first.Count)
	require.Equal(t, next.First-1, n.Last(7))
}

func TestFencesFitIntoABigint(t *testing.T) {
	n := Numbers{Name: "revision", Bits: 16}
	most := int64(1) << (63 - n.Bits)
	require.Equal(t, uint64(math.MaxInt64), n.Last(most-1))
	for _, number := range []int64{most, 0, -1} {
		_, err := n.Block(number, false)
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.Zero(t, n.Last(number))
	}
}

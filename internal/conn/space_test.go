package conn

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSystemOf(t *testing.T) {
	for key, want := range map[string]string{
		"shop:p:1": "shop", "orders:42": "orders", "my-lock": "", "": "", ":a": "", "{a}:b": "", "a{:b": "", "a:{b}": "a", "wllock:shop:ttl": "wllock",
	} {
		require.Equal(t, want, SystemOf(key), key)
		require.Equal(t, want, SystemIn(SpaceOf(want)+"{"+key+"}:s"), key)
		require.Equal(t, want, SystemIn(SpaceOf(want)+"PROCESS"), key)
	}
	require.True(t, IsHelper("wllock:"))
	require.False(t, IsHelper("wllock"))
}

package redislock

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSlotOf(t *testing.T) {
	for key, slot := range map[string]int{ // as the cluster specification and CLUSTER KEYSLOT have them
		"123456789": 12739, "foo": 12182, "{foo}bar": 12182, "a{foo}b{bar}": 12182, "{}foo": 9500, "foo{}": 5542,
	} {
		require.Equal(t, slot, slotOf(key), key)
	}
}

func FuzzHelperKeys(f *testing.F) {
	for _, key := range []string{"plain", "{a}", "a}b", "}{", "{}", "{{a}}", "a{b", "a{}b{c}", "a}b{c"} {
		f.Add(key, "i")
	}
	require.NotEqual(f, keysOf("{a}", ""), keysOf("a", ""))
	f.Fuzz(func(t *testing.T, key, instance string) {
		for _, k := range keysOf(key, instanceName(instance)) {
			require.Equal(t, slotOf(key), slotOf(k))
		}
	})
}

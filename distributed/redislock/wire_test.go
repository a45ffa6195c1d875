package redislock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/identity"
)

func TestReadMessage(t *testing.T) {
	const named = "1200000000000000000007" // 12, and 20 random digits
	id := identity.Attempt{Number: 12, Random: 7}
	for text, want := range map[string]message{
		"g x " + named + " a1 1795259433090872000 1000 0 shop:a b": {
			kind: grantMessage, attempt: id, instance: "a1", key: "shop:a b", grant: grant{fence: 1795259433090872000, count: 1000},
		},
		"g s " + named + " a1 5 1 1 k": {
			kind: grantMessage, attempt: id, mode: distributed.Shared, instance: "a1", key: "k", grant: grant{fence: 5, count: 1, contended: true},
		},
		"w " + named:         {kind: contendedMessage, attempt: id},
		"p " + named + " 30": {kind: checkMessage, attempt: id, delay: 30 * time.Millisecond},
	} {
		m, ok := readMessage(text)
		require.True(t, ok, text)
		require.Equal(t, want, m, text)
	}
	for _, text := range []string{"", "p 0 0", "w", "w x", "g x " + named + " a1 5 1 1", "g x no a1 5 1 1 k", "other " + named} {
		_, ok := readMessage(text)
		require.False(t, ok, text)
	}
}

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

package wllock

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// FuzzInOrder: each byte of the input is a request for one of a few keys, shared or not.
func FuzzInOrder(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{3, 2, 1, 0, 1, 2, 3})
	f.Add([]byte{9, 8, 8, 9})
	f.Fuzz(func(t *testing.T, asked []byte) {
		names := []string{"a:1", "a:10", "a:2", "a-b:1", "a.b:1", "aa:1", "A:1", "a:é", "a:1:1"}
		var all []request
		exclusive, named := map[string]bool{}, map[string]bool{}
		for _, b := range asked {
			m := request{key: "s:" + names[int(b>>1)%len(names)]}
			m.options.mode = distributed.Mode(b & 1)
			named[m.key] = true
			exclusive[m.key] = exclusive[m.key] || m.options.mode == distributed.Exclusive
			all = append(all, m)
		}
		merged := inOrder(all)
		require.Len(t, merged, len(named), "each key once")
		for _, m := range merged {
			require.True(t, named[m.key])
			require.Equal(t, exclusive[m.key], m.options.mode == distributed.Exclusive, m.key)
		}
		require.True(t, slices.IsSortedFunc(merged, func(a, b request) int { return strings.Compare(a.key, b.key) }))
	})
}

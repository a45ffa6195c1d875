package wllock

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// FuzzInOrder: each byte of the input is a request for one of a few keys, shared or not.
func FuzzInOrder(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{3, 2, 1, 0, 1, 2, 3})
	f.Add([]byte{9, 8, 8, 9})
	f.Add([]byte{0, 6}) // full names, where a colon comes after a minus: without their order, ExampleLocker_DoAll would wait for ever
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

var part = regexp.MustCompile(`^[A-Za-z0-9._/-]{1,64}$`)

func FuzzCheckPart(f *testing.F) {
	for _, s := range []string{"", "order", "a:b", "a b", "ä", "A.Z_0/9-", strings.Repeat("x", 65), "a\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		err := checkPart("name", s)
		require.Equal(t, part.MatchString(s) && !strings.HasSuffix(s, "\n"), err == nil, "%q: %v", s, err)
	})
}

func FuzzCheckKey(f *testing.F) {
	for _, s := range []string{"", "1000", "a:{b}", "käse", "a\x00", "\x7f", "\u0085", "\xff", "\xe2\x82", "\ufffd", strings.Repeat("x", 513)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		err := checkKey(s)
		want := len(s) >= 1 && len(s) <= 512 && utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
		require.Equal(t, want, err == nil, "%q: %v", s, err)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidKey)
			require.NotContains(t, err.Error(), "\x00")
		}
	})
}

// Two different triples must never meet in one lock name.
func FuzzNamesDoNotMeet(f *testing.F) {
	f.Add("a", "b", "c:d", "a", "b", "c")
	f.Fuzz(func(t *testing.T, s1, n1, k1, s2, n2, k2 string) {
		for _, p := range []string{s1, n1, s2, n2} {
			if checkPart("", p) != nil {
				return
			}
		}
		same := s1 == s2 && n1 == n2 && k1 == k2
		require.Equal(t, same, s1+":"+n1+":"+k1 == s2+":"+n2+":"+k2)
	})
}

package wllock

import (
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

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

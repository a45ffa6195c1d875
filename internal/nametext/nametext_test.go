package nametext_test

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/nametext"
)

func TestQuote(t *testing.T) {
	fits := strings.Repeat("k", 64)
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", `""`},
		{"stays on its line", "a\n\x00", `"a\n\x00"`},
		{"as long as is shown", fits, strconv.Quote(fits)},
		{"longer", fits + "k", strconv.Quote(fits) + "..."},
		{"cut before a character, not inside", fits[:63] + "ä", strconv.Quote(fits[:63]) + "..."},
		{"not UTF-8", strings.Repeat("\x80", 100), `""...`},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, nametext.Quote(test.text)) })
	}
}

func FuzzQuote(f *testing.F) {
	f.Add(strings.Repeat("ä", 40))
	f.Fuzz(func(t *testing.T, text string) {
		shown, cut := strings.CutSuffix(nametext.Quote(text), `"...`)
		if cut {
			shown += `"`
		}
		got, err := strconv.Unquote(shown)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(text, got))
		require.LessOrEqual(t, len(got), 64)
		require.True(t, !utf8.ValidString(text) || utf8.ValidString(got))
	})
}

var rule = regexp.MustCompile(`\A[A-Za-z0-9._/-]{1,64}\z`)

func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"", "order", "a:b", "a b", "ä", "A.Z_0/9-", strings.Repeat("x", 65), "a\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		err := nametext.CheckName("name", s)
		require.Equal(t, rule.MatchString(s), err == nil, "%q: %v", s, err)
	})
}

// A JSON text that is printed moves no cursor, and programs read what they read before.
func TestJSONIsPrintable(t *testing.T) {
	evil := "\u009b2J \u202e \U000e0001 \x1b[2J größe 😀"
	text, err := json.Marshal(evil)
	require.NoError(t, err)
	safe := nametext.JSON(string(text))
	require.Equal(t, `"\u009b2J \u202e \udb40\udc01 \u001b[2J größe 😀"`, safe)
	var back string
	require.NoError(t, json.Unmarshal([]byte(safe), &back))
	require.Equal(t, evil, back)
}

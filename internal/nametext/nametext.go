// Package nametext holds the rule for names and prints what callers gave us: names, keys, settings without secrets.
package nametext

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Rule is what CheckName accepts, in words.
const Rule = "1 to 64 of the characters A-Z a-z 0-9 . _ / -"

const (
	maxName   = 64 // bytes
	maxQuoted = 64 // bytes that Quote shows: enough to recognise a text, too few to flood a log
)

// CheckName refuses a name that does not match [A-Za-z0-9._/-]{1,64}. what says in the error whose name it is.
// Another module, middleware/grpcguard, calls it: its signature stays.
func CheckName(what, name string) error {
	if len(name) == 0 || len(name) > maxName {
		return fmt.Errorf("%s has %d bytes, want 1 to %d", what, len(name), maxName)
	}
	for i := range len(name) {
		if !nameByte(name[i]) {
			return fmt.Errorf("%s %s has %q at byte %d, want letters, digits, and . _ / - only", what, Quote(name), name[i], i)
		}
	}
	return nil
}

func nameByte(b byte) bool {
	switch {
	case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
		return true
	}
	return b == '.' || b == '_' || b == '/' || b == '-'
}

// Quote makes a text fit to print: quoted, so that it stays on its line, and cut between two characters.
func Quote(text string) string {
	shown, more := cut(text)
	return strconv.Quote(shown) + more
}

// Cut is Quote for what quotes by itself, as a slog.Handler does.
func Cut(text string) string {
	shown, more := cut(text)
	return shown + more
}

func cut(text string) (shown, more string) {
	if len(text) <= maxQuoted {
		return text, ""
	}
	end := maxQuoted
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end], "..."
}

// JSON makes a JSON text fit to print. More is escaped than JSON demands: all that is not printable.
func JSON(text string) string {
	var safe strings.Builder
	for _, r := range text {
		if r == '\n' || unicode.IsPrint(r) {
			safe.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&safe, `\u%04x`, unit)
		}
	}
	return safe.String()
}

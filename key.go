package wllock

import (
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/wllock/wllock/internal/nametext"
)

const maxKey = 512 // bytes

// checkPart refuses a bad system or name. Neither has a colon, so two different triples of system, name and key never
// meet in one lock name.
func checkPart(what, s string) error {
	if err := nametext.CheckName(what, s); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidKey, err)
	}
	return nil
}

// checkKey refuses a key that is not 1 to 512 bytes of valid UTF-8 without control characters. The error is for an *Error, which names the key.
func checkKey(key string) error {
	if len(key) == 0 || len(key) > maxKey {
		return fmt.Errorf("%w: key has %d bytes, want 1 to %d", ErrInvalidKey, len(key), maxKey)
	}
	for i := range len(key) {
		if b := key[i]; b < ' ' || b >= 0x7f {
			return checkRunes(key)
		}
	}
	return nil
}

// checkRunes is the rest of checkKey, for keys that are not plain ASCII.
func checkRunes(key string) error {
	if !utf8.ValidString(key) {
		return fmt.Errorf("%w: key is not valid UTF-8", ErrInvalidKey)
	}
	for i, r := range key {
		if unicode.IsControl(r) {
			return fmt.Errorf("%w: key has a control character at byte %d", ErrInvalidKey, i)
		}
	}
	return nil
}

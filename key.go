package wllock

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

const (
	maxPart = 64  // bytes of a system or a name
	maxKey  = 512 // bytes of a key
)

// checkPart refuses a system or a name that does not match [A-Za-z0-9._/-]{1,64}. There is no colon in it, so that two
// different triples of system, name and key never meet in one lock name.
func checkPart(what, s string) error {
	if len(s) == 0 || len(s) > maxPart {
		return fmt.Errorf("%w: %s has %d bytes, want 1 to %d", ErrInvalidKey, what, len(s), maxPart)
	}
	for i := range len(s) {
		if !partByte(s[i]) {
			return fmt.Errorf("%w: %s %s has %q at byte %d, want letters, digits, and . _ / - only",
				ErrInvalidKey, what, quote(s), s[i], i)
		}
	}
	return nil
}

func partByte(b byte) bool {
	switch {
	case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
		return true
	}
	return b == '.' || b == '_' || b == '/' || b == '-'
}

// checkKey refuses a key that is not 1 to 512 bytes of valid UTF-8 without control characters.
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
		return fmt.Errorf("%w: key %s is not valid UTF-8", ErrInvalidKey, quote(key))
	}
	for i, r := range key {
		if unicode.IsControl(r) {
			return fmt.Errorf("%w: key %s has a control character at byte %d", ErrInvalidKey, quote(key), i)
		}
	}
	return nil
}

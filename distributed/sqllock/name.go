package sqllock

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

const (
	// longestName is the size of the name column in bytes. InnoDB and PostgreSQL index longer ones, but each row of the queue
	// repeats it.
	longestName = 190
	// hashMark begins names that are hashes. A key of a Locker never begins with it; one that does is hashed as well.
	hashMark = '#'
	// shownName is how much of a hashed key is kept beside, for people: all of a Locker's.
	shownName = 700
	// longestInstance is the size of the instance columns, which are for people, too.
	longestInstance = 100
)

// storedName returns a key as the name column has it. It is the key itself if that fits and is text; else its hash, and full is the
// key for people to read. Two keys never have one name.
func storedName(key string) (name, full string) {
	if len(key) <= longestName && key[0] != hashMark && isText(key) {
		return key, ""
	}
	sum := sha256.Sum256([]byte(key))
	return string(hashMark) + hex.EncodeToString(sum[:]), cut(key, shownName)
}

// cut makes text for people of what may be longer, or no text.
func cut(text string, most int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// isText reports whether every database stores the key as it is: PostgreSQL takes valid UTF-8 without zero bytes only.
func isText(key string) bool { return utf8.ValidString(key) && strings.IndexByte(key, 0) < 0 }

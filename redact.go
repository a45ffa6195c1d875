package wllock

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

const (
	// minSecret is what a secret of HashKeys has at least, in bytes: fewer can be found by trying, by whoever knows one key and its hash.
	minSecret = 16
	// hashBytes are enough that two of a billion keys are alike with a chance of 3%, and few enough to read out.
	hashBytes = 8
)

// WithKeyRedaction replaces keys in all texts that leave the process through the Locker (default: none): errors (Error.Key and its text),
// log lines, the attributes of WithSpanKeys, Stats, Locks, and the debug page. A lock is called system:name:redact(key) there. It is for
// keys that are account numbers or addresses, and logs that many may read. Log lines have the key then without debug lines as well.
//
// redact gets the key without system and name. [HashKeys] makes one. Another should return different texts for different keys, or errors
// and log lines do not tell which lock they are about. Many goroutines call it. Only the caller that gets the text waits for it, or the
// log. If it panics, or ends its goroutine, the text is "redacted".
//
// Held.Key, HeldKey, Inspect, and what fn returns or panics with stay as they are, and so does the cause of a context of the program's. So
// does the lock service, because all processes must use the same key there: who may read it sees the keys.
//
// A backend's error may name the key in any form. Of its text only what can hold no key is left: what was asked, whether it was refused or
// unavailable, addresses, codes of the service, and hints of wllock. "(redacted)" stands for the rest. errors.Is still finds what it wraps,
// and errors.As only what holds no key. The reason of a Break is a person's text, and left out as well: Inspect tells it. Names of locks and
// instances are no keys.
func WithKeyRedaction(redact func(key string) string) Option {
	return option(func(s *settings) {
		s.redact = redact
		if redact == nil {
			s.wrong("WithKeyRedaction(nil): want a function: HashKeys makes one of a secret of %d bytes or more", minSecret)
		}
	})
}

// HashKeys returns a function for [WithKeyRedaction] that makes of a key # and 16 hexadecimal digits, the beginning of its HMAC-SHA-256
// under the secret. It is the same in all processes that have the secret, so that log lines can be compared, and wllock who and break find
// the lock. A plain hash of an account number is turned back by trying all of them. This one is not, without the secret. So
// keep that as a password, and from those who read logs. If it has less than 16 bytes, HashKeys returns nil, which New refuses.
func HashKeys(secret []byte) func(key string) string {
	if len(secret) < minSecret {
		return nil
	}
	secret = slices.Clone(secret)
	return func(key string) string {
		h := hmac.New(sha256.New, secret)
		h.Write([]byte(key))
		return "#" + hex.EncodeToString(h.Sum(nil)[:hashBytes])
	}
}

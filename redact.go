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

// WithKeyRedaction replaces keys in all texts that leave the process through the Locker (default: none): errors (Error.Key and the text), log
// lines, the attributes of WithSpanKeys, Stats, Locks, and the debug page. A lock is called system:name:redact(key) there. Use it if keys are
// account numbers or addresses, and many people may read the logs. Log lines then include the redacted key even without debug lines.
//
// redact gets the key without system and name. [HashKeys] makes such a function. Your own should return different texts for different keys, or
// errors and log lines do not tell which lock they are about. redact runs on many goroutines. Only the caller that gets the text, or the log,
// waits for it. If redact panics, or ends its goroutine, the text is "redacted".
//
// Held.Key, HeldKey, Inspect, what fn returns or panics with, and the cause of a context of your program stay as they are. So does the lock
// service, because all processes must use the same key there: those who may read the service see the keys.
//
// A backend's error may name the key in any form. Only parts of its text that cannot hold a key are kept: what was asked, whether it was refused
// or unavailable, addresses, codes of the service, and hints of wllock. "(redacted)" stands for the rest. errors.Is still finds what the error
// wraps, and errors.As only what holds no key. The reason of a Break is a person's text, so it is left out as well: Inspect has it. Names of
// locks and instances are not keys.
func WithKeyRedaction(redact func(key string) string) Option {
	return option(func(s *settings) {
		s.redact = redact
		if redact == nil {
			s.wrong("WithKeyRedaction(nil): want a function: HashKeys makes one of a secret of %d bytes or more", minSecret)
		}
	})
}

// HashKeys returns a function for [WithKeyRedaction] that turns a key into # and 16 hexadecimal digits, the beginning of its HMAC-SHA-256 under
// the secret. The result is the same in all processes that have the secret, so that log lines can be compared, and wllock who and break find the
// lock. A plain hash of an account number can be reversed by brute force. This one cannot, without the secret. So store the secret like a
// password, away from readers of the logs. If it has less than 16 bytes, HashKeys returns nil, which New refuses.
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

package wllock

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/wllock/wllock/distributed"
)

const (
	// minSecret is what a secret of HashKeys has at least, in bytes: fewer can be found by trying, by whoever knows one key and its hash.
	minSecret = 16
	// hashBytes are enough that two of a billion keys are alike with a chance of 3%, and few enough to read out.
	hashBytes = 8
	// leastAlone is the length, in bytes, from which a key is looked for in an error without its system and name before it. Shorter ones
	// occur for other reasons, such as numbers in addresses.
	leastAlone = 4
	// redactionFailed stands for a key whose redaction has panicked.
	redactionFailed = "#?"
	// redactedRest stands for a key that is not known, and for what follows it, because nothing tells where it ends.
	redactedRest = "#..."
)

// WithKeyRedaction replaces keys in all texts that leave the process through the Locker (default: none): errors (Error.Key and its text),
// log lines, the attributes of WithSpanKeys, Stats, Locks, and the debug page. A lock is called system:name:redact(key) there. It is for
// keys that are account numbers or addresses, and logs that many may read. Log lines have the key then without debug lines as well.
//
// redact gets the key without system and name. [HashKeys] makes one. Another should return different texts for different keys, or errors
// and log lines do not tell which lock they are about. Many goroutines call it, and wait for it.
//
// Held.Key, HeldKey, Inspect, and what fn returns or panics with stay as they are. So does the lock service, because all processes must
// use the same key there: who may read it sees the keys. If the text of the backend's error has the key, another error stands in
// for it: errors.Is still finds what it wrapped, and errors.As does not. Give all Lockers of a backend the option. Names of locks and
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

// redaction makes texts fit to leave the process. It never changes; nil: they stay as they are.
type redaction struct {
	redact func(key string) string
	head   *regexp.Regexp // what a full name of this system begins with, up to its key
}

func newRedaction(system string, redact func(string) string) *redaction {
	if redact == nil {
		return nil
	}
	return &redaction{redact, regexp.MustCompile(`(?:^|[^A-Za-z0-9._/-])(` + regexp.QuoteMeta(system) + `:[A-Za-z0-9._/-]{1,64}:)\S`)}
}

// key returns the key as it is shown. The function is foreign, so it may panic, and its caller may hold a turn.
func (r *redaction) key(key string) (shown string) {
	if r == nil {
		return key
	}
	defer func() {
		if recover() != nil {
			shown = redactionFailed
		}
	}()
	return r.redact(key)
}

// name returns a full name as it is shown. Neither system nor name has a colon.
func (r *redaction) name(full string) string {
	if r == nil {
		return full
	}
	parts := strings.SplitN(full, ":", 3)
	last := len(parts) - 1
	parts[last] = r.key(parts[last])
	return strings.Join(parts, ":")
}

// error returns err, which the backend has had a part in, without the key of full, and without other keys of the system. full is ""
// where that is not known: what has gone wrong is remembered for as long as the backend is away. So the error of an Enter is redacted at
// once, with its key, and no second time.
func (r *redaction) error(err error, full string) error {
	if r == nil || err == nil {
		return err
	}
	if _, done := errors.AsType[*redacted](err); done {
		return err
	}
	text := err.Error()
	if shown := r.text(text, full); shown != text {
		return &redacted{err, shown}
	}
	return err
}

func (r *redaction) text(text, full string) string {
	if r == nil {
		return text
	}
	var shown string
	if parts := strings.SplitN(full, ":", 3); len(parts) == 3 {
		shown = r.key(parts[2])
		text = replaceWhole(text, full, r.name(full))
		if len(parts[2]) >= leastAlone {
			text = replaceWhole(text, parts[2], shown)
		}
	}
	for at := 0; ; {
		found := r.head.FindStringSubmatchIndex(text[at:])
		if found == nil {
			return text
		}
		from := at + found[3]
		if shown == "" || !strings.HasPrefix(text[from:], shown) {
			return text[:from] + redactedRest
		}
		at = from + len(shown)
	}
}

// replaceWhole replaces a text, as it is and quoted, where it is not a part of a longer one.
func replaceWhole(in, text, by string) string {
	quoted := strconv.Quote(text)
	for _, form := range slices.Compact([]string{text, quoted[1 : len(quoted)-1]}) {
		if !strings.Contains(in, form) {
			continue
		}
		whole := regexp.MustCompile(`(^|[^A-Za-z0-9._@+-])` + regexp.QuoteMeta(form) + `($|[^A-Za-z0-9._/:@+-]|[.:](?:\s|$))`)
		for range 2 { // two that follow each other share what is between them
			in = whole.ReplaceAllString(in, "${1}"+strings.ReplaceAll(by, "$", "$$")+"${2}")
		}
	}
	return in
}

// redacted is an error whose text had a key in it. It does not unwrap, because the wrapped error would show that; errors.Is looks inside.
type redacted struct {
	err  error
	text string
}

func (r *redacted) Error() string        { return r.text }
func (r *redacted) Is(target error) bool { return errors.Is(r.err, target) }

// As finds who has the lock, whose text has no key.
func (r *redacted) As(target any) bool {
	held, ok := target.(**distributed.HeldError)
	return ok && errors.As(r.err, held)
}

// GoString is Error for %#v.
func (r *redacted) GoString() string { return r.text }

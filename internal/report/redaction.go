package report

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/wllock/wllock/distributed"
)

const (
	// leastAlone is the length, in bytes, from which a key is looked for in an error without its system and name before it. Shorter ones
	// occur for other reasons, such as numbers in addresses.
	leastAlone = 4
	// redactionFailed stands for a key whose redaction has panicked.
	redactionFailed = "#?"
	// redactedRest stands for a key that is not known, and for what follows it, because nothing tells where it ends.
	redactedRest = "#..."
)

// Redaction makes texts fit to leave the process. It never changes. nil: they stay as they are.
type Redaction struct {
	redact func(key string) string
	head   *regexp.Regexp // what a full name of this system begins with, up to its key
}

func newRedaction(system string, redact func(string) string) *Redaction {
	if redact == nil {
		return nil
	}
	return &Redaction{redact, regexp.MustCompile(`(?:^|[^A-Za-z0-9._/-])(` + regexp.QuoteMeta(system) + `:[A-Za-z0-9._/-]{1,64}:)\S`)}
}

// Key returns the key as it is shown. The function is foreign, so it may panic, and its caller may hold a turn.
func (r *Redaction) Key(key string) (shown string) {
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

// Name returns a full name as it is shown. Neither system nor name has a colon.
func (r *Redaction) Name(full string) string {
	if r == nil {
		return full
	}
	parts := strings.SplitN(full, ":", 3)
	last := len(parts) - 1
	parts[last] = r.Key(parts[last])
	return strings.Join(parts, ":")
}

// Error returns err, which the backend has had a part in, without the key of full, and without other keys of the system. full is ""
// where that is not known: what has gone wrong is remembered for as long as the backend is away. So the error of an Enter is redacted at
// once, with its key, and no second time.
func (r *Redaction) Error(err error, full string) error {
	if r == nil || err == nil {
		return err
	}
	if _, done := errors.AsType[*redacted](err); done {
		return err
	}
	text := err.Error()
	if shown := r.Text(text, full); shown != text {
		return &redacted{err, shown}
	}
	return err
}

// Text is Error for a text.
func (r *Redaction) Text(text, full string) string {
	if r == nil {
		return text
	}
	var shown string
	if parts := strings.SplitN(full, ":", 3); len(parts) == 3 {
		shown = r.Key(parts[2])
		text = replaceWhole(text, full, r.Name(full))
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

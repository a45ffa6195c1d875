package report

import (
	"strings"

	"github.com/wllock/wllock/internal/keyless"
)

// redactionFailed stands for a key whose redaction has panicked, or has ended its goroutine.
const redactionFailed = "redacted"

// Redaction makes texts fit to leave the process. It never changes. nil: they stay as they are.
type Redaction struct{ redact func(key string) string }

func newRedaction(redact func(string) string) *Redaction {
	if redact == nil {
		return nil
	}
	return &Redaction{redact}
}

// Key returns the key as it is shown. The function is foreign: it may take its time, panic, or end its goroutine, which is one of its own. No
// goroutine waits for it that keeps a turn, ends contexts, or has a mutex.
func (r *Redaction) Key(key string) (shown string) {
	if r == nil {
		return key
	}
	made := make(chan string, 1)
	go func() {
		shown := redactionFailed
		defer func() {
			if recover() != nil {
				shown = redactionFailed
			}
			made <- shown
		}()
		shown = r.redact(key)
	}()
	return <-made
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

// Error returns err, which the backend has had a part in, without what may hold a key: see package keyless.
func (r *Redaction) Error(err error) error {
	if r == nil || err == nil {
		return err
	}
	return keyless.Of(err)
}

// Text returns a text of a person's, or of foreign code.
func (r *Redaction) Text(text string) string {
	if r == nil {
		return text
	}
	return keyless.Redacted
}

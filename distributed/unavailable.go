package distributed

import (
	"errors"
	"slices"
	"strings"

	"github.com/wllock/wllock/internal/keyless"
)

// away is the error of a backend that cannot do its work.
type away struct {
	text string
	says string // where, and what kind it is: text without why
	why  error
	is   []error
}

// Unavailable returns an error for a backend: it Is ErrUnavailable, why, and all of also. Its text is one line: where, whether the service has
// refused (ErrRefused) or is unavailable, and why. Without where it is why alone.
//
// where must not hold a key, and is best a constant: it is shown where keys are redacted. The text of why is not.
func Unavailable(where string, why error, also ...error) error {
	a := &away{why: why, is: append([]error{ErrUnavailable, why}, also...)}
	switch {
	case where == "":
	case errors.Is(a, ErrRefused):
		a.says = where + ": refused: "
	default:
		a.says = where + ": unavailable: "
	}
	a.text = a.says + oneLine(why.Error())
	return a
}

// Error implements error.
func (a *away) Error() string { return a.text }

// Keyless is what is shown of a where keys are redacted.
func (a *away) Keyless() (text string, safe bool) {
	text, _ = keyless.Text(a.why)
	safe = true
	for _, err := range a.is {
		_, one := keyless.Text(err)
		safe = safe && one
	}
	return a.says + oneLine(text), safe
}

// Unwrap is for errors.Is and errors.As.
func (a *away) Unwrap() []error { return a.is }

// oneLine returns a text of several lines, as drivers write them, in one; a line that is said twice once.
func oneLine(text string) string {
	if !strings.Contains(text, "\n") {
		return text
	}
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
}

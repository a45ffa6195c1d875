package distributed

import (
	"errors"
	"slices"
	"strings"
)

// away is the error of a backend that cannot do its work.
type away struct {
	text string
	is   []error
}

// Unavailable returns an error for a backend: it Is ErrUnavailable, why, and all of also. Its text is on one line: where, whether the
// service has refused (ErrRefused) or is unavailable, and why. Without where it is why alone.
func Unavailable(where string, why error, also ...error) error {
	a := &away{is: append([]error{ErrUnavailable, why}, also...)}
	a.text = oneLine(why.Error())
	switch {
	case where == "":
	case errors.Is(a, ErrRefused):
		a.text = where + ": refused: " + a.text
	default:
		a.text = where + ": unavailable: " + a.text
	}
	return a
}

// Error implements error.
func (a *away) Error() string { return a.text }

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

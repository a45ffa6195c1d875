package config

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// scrubbed is an error of code that got secrets, with a text without them. It does not unwrap, because the wrapped error
// would show them; errors.Is looks inside.
type scrubbed struct {
	err  error
	text string
}

// shortSecret is the length below which a secret is likely to stand in a text by chance. To replace it there would show which letters it has.
const shortSecret = 4

// scrub returns err with the secrets, in any spelling, removed from its text. Of a text that has a short one only the system's reason is left.
func scrub(err error, secrets []string) error {
	var forms []string
	for _, secret := range secrets {
		if secret != "" && len(secret) < shortSecret && slices.ContainsFunc(spellings(secret), func(form string) bool { return strings.Contains(err.Error(), form) }) {
			return &scrubbed{err: err, text: reason(err) + " (the rest is not shown: it may contain a secret)"}
		}
		forms = append(forms, spellings(secret)...)
	}
	// the longest first: without a removed part the whole would not be found
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	text := err.Error()
	for _, form := range slices.Compact(forms) {
		text = strings.ReplaceAll(text, form, hidden)
	}
	return &scrubbed{err: err, text: text}
}

func (s *scrubbed) Error() string        { return s.text }
func (s *scrubbed) Is(target error) bool { return errors.Is(s.err, target) }

// GoString is Error for %#v.
func (s *scrubbed) GoString() string { return s.text }

// spellings are the forms in which a text occurs in URLs and quoted in errors.
func spellings(text string) []string {
	if text == "" {
		return nil
	}
	quoted := strconv.Quote(text)
	ascii := strconv.QuoteToASCII(text)
	return []string{
		text,
		url.QueryEscape(text),
		url.PathEscape(text),
		strings.TrimPrefix(url.UserPassword("", text).String(), ":"),
		quoted[1 : len(quoted)-1],
		ascii[1 : len(ascii)-1],
	}
}

package report

import (
	"strings"

	"github.com/wllock/wllock/internal/keyless"
)

// joined is several errors on one line, which errors.Join puts on several: logs are lines. It is used by its address, since callers
// compare errors, as err == context.Cause(ctx), and put them into maps.
type joined struct{ all []error }

// Join returns an error that Is each of those that are not nil, and nil if there is none.
func Join(errs ...error) error {
	var all []error
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &joined{all}
}

// Error implements error.
func (j *joined) Error() string {
	texts := make([]string, len(j.all))
	for i, err := range j.all {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Keyless implements keyless.Error.
func (j *joined) Keyless() (text string, safe bool) {
	texts := make([]string, len(j.all))
	safe = true
	for i, err := range j.all {
		t, all := keyless.Text(err)
		texts[i], safe = t, safe && all
	}
	return strings.Join(texts, "; "), safe
}

// Unwrap is for errors.Is and errors.As.
func (j *joined) Unwrap() []error { return j.all }

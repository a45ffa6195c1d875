package distributed

import (
	"time"

	"github.com/wllock/wllock/internal/keyless"
)

// LostError is ErrLeaseLost with the reason why the lease was not renewed. Get it with errors.As.
//
// errors.Is finds ErrLeaseLost in it, and nothing of Err. The function has run, or is still running, and ErrUnavailable would tell its caller
// that it has not.
type LostError struct {
	At  time.Time // when the last renewal failed, or should have been sent
	Err error     // why it failed, in the backend's own words
}

// LossOf returns the ErrLeaseLost of a lost lease: a *LostError if the lease says why it was not renewed.
func LossOf(l Lease) error {
	if e := l.LostError(); e != nil {
		return e
	}
	return ErrLeaseLost
}

// Error implements error.
func (e *LostError) Error() string { return e.with(e.Err.Error()) }

func (e *LostError) with(why string) string {
	return ErrLeaseLost.Error() + ": its last renewal, at " + e.At.UTC().Format("15:04:05.000Z07:00") + ", failed: " + why
}

// Keyless returns the text of e that is shown where keys are redacted.
func (e *LostError) Keyless() (text string, safe bool) {
	text, safe = keyless.Text(e.Err)
	return e.with(text), safe
}

// Is reports whether target is ErrLeaseLost, or a LostError with any reason: a lease is lost once.
func (*LostError) Is(target error) bool {
	_, same := target.(*LostError)
	return same || target == ErrLeaseLost
}

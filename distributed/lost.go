package distributed

import "time"

// LostError is ErrLeaseLost with the reason why the lease was not renewed. Get it with errors.As.
//
// errors.Is finds ErrLeaseLost in it, and nothing of Err. The function has run, or runs yet, and ErrUnavailable would tell its caller
// that it has not.
type LostError struct {
	At  time.Time // when the last renewal failed, or should have been sent
	Err error     // why it failed, in the backend's own words
}

// Error implements error.
func (e *LostError) Error() string {
	return ErrLeaseLost.Error() + ": its last renewal, at " + e.At.UTC().Format("15:04:05.000Z07:00") + ", failed: " + e.Err.Error()
}

// Is reports that target is ErrLeaseLost, or a LostError of whatever reason: a lease is lost once.
func (*LostError) Is(target error) bool {
	_, same := target.(*LostError)
	return same || target == ErrLeaseLost
}

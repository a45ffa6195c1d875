package child

// Exit codes of shells for a command that did not run.
const (
	CannotExecute = 126
	NotFound      = 127
)

// Error is the reason why a command did not run.
type Error struct {
	Code int
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the system's error.
func (e *Error) Unwrap() error { return e.Err }

// Process is one that runs.
type Process struct {
	Pid   int
	Name  string
	Err   error // why End could not end it. nil: the system has not done so yet
	group int   // on Unix
}

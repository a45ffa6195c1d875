package httpguard

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/problem"
)

// answer is a row of the table: the response to an error.
type answer struct {
	err    error
	status int
	kind   string // of problem
	detail string
	retry  bool // with Retry-After
}

const (
	busy    = "Too many requests for the same resource at once. Try again later."
	tooLong = "The request waited for the maximum time. Try again later."
)

// answers are searched in order: the error of an unavailable backend may also be that of a deadline.
var answers = []answer{ // rule H1
	{wllock.ErrLeaseLost, http.StatusServiceUnavailable, "lease-lost", "The lock was lost while the request was being processed. It may have been processed in part.", false},
	{wllock.ErrLockTimeMax, http.StatusServiceUnavailable, "lease-lost", "Processing took longer than allowed. The request may have been processed in part.", false},
	{wllock.ErrQueueFull, http.StatusTooManyRequests, "queue-full", busy, true},
	{wllock.ErrUnavailable, http.StatusServiceUnavailable, "backend-unavailable", "The lock service does not respond. Try again later.", true},
	{wllock.ErrWaitTimeout, http.StatusTooManyRequests, "wait-timeout", tooLong, true},
	{wllock.ErrHeld, http.StatusConflict, "held", "Another request holds the lock. Try again later.", true},
	{errBody, http.StatusBadRequest, "unreadable-body", "The request body could not be read.", false},
	{errMissing, http.StatusBadRequest, "invalid-key", "The key of the request is missing.", false},
	{errSeveral, http.StatusBadRequest, "invalid-key", "The key of the request occurs more than once.", false},
	{errShape, http.StatusBadRequest, "invalid-key", "The request body is not one JSON object.", false},
	{errKind, http.StatusBadRequest, "invalid-key", "The key of the request is neither a string nor a whole number.", false},
	{errLarge, http.StatusBadRequest, "invalid-key", "The key of the request is a number beyond 2^53, which not all programs read exactly: send it as a string.", false},
	{wllock.ErrInvalidKey, http.StatusBadRequest, "invalid-key", "The key of the request is malformed, or there are too many: a key is text of 1 to 512 bytes without control characters.", false},
	{wllock.ErrClosed, http.StatusServiceUnavailable, "shutting-down", "This server is shutting down. Try again.", true},
	{context.DeadlineExceeded, http.StatusTooManyRequests, "wait-timeout", tooLong, true}, // set by an outer middleware
	{context.Canceled, http.StatusServiceUnavailable, "canceled", "The request was canceled before it got the lock. Try again later.", true},
}

// cut is for a request that was admitted and lost its lock because the Locker closed.
var cut = answer{status: http.StatusServiceUnavailable, kind: "shutting-down", detail: "This server is shutting down. The request may have been processed in part."}

// other is for mistakes in the program: an exclusive lock inside a shared one, locks out of order, a wrong option.
var other = answer{status: http.StatusInternalServerError, kind: "internal", detail: "The request could not be processed."}

// tooLarge is not in the table: its error comes wrapped as that of a key.
var tooLarge = answer{status: http.StatusRequestEntityTooLarge, kind: "body-too-large", detail: "The request body is longer than allowed."}

func answerTo(err error) answer {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge
	}
	for _, a := range answers {
		if errors.Is(err, a.err) {
			switch {
			case a.err == errBody:
				return a.ofReader(err)
			case a.err == wllock.ErrClosed && entered(err):
				return cut
			}
			return a
		}
	}
	return other
}

// ofReader is a with the status of the error that the body's reader returned, if it has one: outer middleware may limit a body, or the time
// for it.
func (a answer) ofReader(err error) answer {
	coded, ok := errors.AsType[interface { // echo's
		error
		StatusCode() int
	}](err)
	switch {
	case ok && coded.StatusCode() == tooLarge.status:
		return tooLarge
	case ok && coded.StatusCode() >= 400 && coded.StatusCode() <= 599:
		a.status = coded.StatusCode()
	case errors.Is(err, os.ErrDeadlineExceeded):
		a.status = http.StatusRequestTimeout
	}
	return a
}

// entered reports whether an error that Is ErrClosed came after the request was admitted. A refusal is an *wllock.Error
// that has not run; otherwise the error is the cause of a context that the Locker ended: the handler's, or, beside that
// context's error, the one that an outer guard gave this one to wait with.
func entered(err error) bool {
	e, ok := errors.AsType[*wllock.Error](err)
	return !ok || e.Ran || errors.Is(err, context.Canceled)
}

// prepareAnswer returns the status for an error and sets Retry-After if it applies.
func (s *settings) prepareAnswer(w http.ResponseWriter, err error) (status int) {
	a := answerTo(err)
	if a.retry {
		problem.RetryAfter(w.Header(), retryAfter(err))
	}
	if a.kind == "queue-full" || a.kind == "wait-timeout" {
		return s.shedStatus
	}
	return a.status
}

func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*wllock.Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// Respond answers err as the middleware does by default, with Retry-After and a problem. It is for a handler that calls a Locker itself, and for
// responses that a function of WithResponder leaves to the default. It ignores WithShedStatus of a guard.
//
// err must not be nil. An error that is not in the table of the package documentation, such as one of the handler's own work, is a 500 that
// reveals nothing of it. Call Respond before anything is written: if a response has visibly begun, it writes nothing.
func Respond(w http.ResponseWriter, r *http.Request, err error) { defaults.refuse(w, r, err) }

// respond is the default of WithResponder.
func respond(w http.ResponseWriter, _ *http.Request, status int, err error) {
	problemOf(err, status).Write(w)
}

func problemOf(err error, status int) problem.Problem {
	a := answerTo(err) // rule H3: all texts are constants
	p := problem.Problem{Type: problem.Type(a.kind), Title: http.StatusText(status), Status: status, Detail: a.detail}
	if a.retry {
		p.RetryAfterMS = problem.Milliseconds(retryAfter(err))
	}
	return p
}

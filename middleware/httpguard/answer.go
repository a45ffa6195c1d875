package httpguard

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/problem"
)

// answer is a row of the table: what clients get for an error.
type answer struct {
	err    error
	status int
	kind   string // of problem
	detail string
	retry  bool // says when to come again
}

const (
	busy    = "Many want the same at once. Try again later."
	tooLong = "The wait took as long as allowed. Try again later."
)

// answers are looked through in their order: an unavailable backend may have brought a deadline's error along.
var answers = []answer{
	{wllock.ErrLeaseLost, http.StatusServiceUnavailable, "lease-lost", "The lock was lost while the request was worked on, which may have been done in part.", false},
	{wllock.ErrLockTimeMax, http.StatusServiceUnavailable, "lease-lost", "The work took longer than it may, and may have been done in part.", false},
	{wllock.ErrQueueFull, http.StatusTooManyRequests, "queue-full", busy, true},
	{wllock.ErrUnavailable, http.StatusServiceUnavailable, "backend-unavailable", "The lock service does not answer. Try again later.", true},
	{wllock.ErrWaitTimeout, http.StatusTooManyRequests, "wait-timeout", tooLong, true},
	{wllock.ErrHeld, http.StatusConflict, "held", "Somebody else is at it. Try again later.", true},
	{errBody, http.StatusBadRequest, "unreadable-body", "The request's body could not be read.", false},
	{wllock.ErrInvalidKey, http.StatusBadRequest, "invalid-key", "What the request is about is missing in it, or is malformed.", false},
	{wllock.ErrClosed, http.StatusServiceUnavailable, "shutting-down", "This server is being stopped. Try again.", true},
	{context.DeadlineExceeded, http.StatusTooManyRequests, "wait-timeout", tooLong, true}, // set by a middleware further out
}

// cut is for a request that had been let in when the Locker closed, and took its lock away.
var cut = answer{status: http.StatusServiceUnavailable, kind: "shutting-down", detail: "This server is being stopped. The request may have been done in part."}

// other is for what is wrong with the program: an exclusive lock inside a shared one, a wrong option.
var other = answer{status: http.StatusInternalServerError, kind: "internal", detail: "The request could not be handled."}

// tooLarge has a rank of its own: its error comes wrapped as that of a key.
var tooLarge = answer{status: http.StatusRequestEntityTooLarge, kind: "body-too-large", detail: "The request's body is longer than allowed."}

func answerTo(err error) answer {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge
	}
	for _, a := range answers {
		if errors.Is(err, a.err) {
			if a.err == wllock.ErrClosed && entered(err) {
				return cut
			}
			return a
		}
	}
	return other
}

// entered reports that an error that Is ErrClosed came after the request was let in. The door's own is an *wllock.Error;
// else it is the cause of a context that the Locker has ended: the handler's, or, beside that context's error, the one
// that a guard further out has let this one wait with.
func entered(err error) bool {
	e, ok := errors.AsType[*wllock.Error](err)
	return !ok || e.Ran || errors.Is(err, context.Canceled)
}

// prepareAnswer returns the status for an error, and sets Retry-After if it has one.
func (g *guard) prepareAnswer(w http.ResponseWriter, err error) (status int) {
	a := answerTo(err)
	if a.retry {
		problem.RetryAfter(w.Header(), retryAfter(err))
	}
	if a.kind == "queue-full" || a.kind == "wait-timeout" {
		return g.shedStatus
	}
	return a.status
}

func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*wllock.Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// respond is what answers unless WithResponder says otherwise.
func respond(w http.ResponseWriter, _ *http.Request, status int, err error) {
	problemOf(err, status).Write(w)
}

func problemOf(err error, status int) problem.Problem {
	a := answerTo(err)
	return problem.Problem{Type: problem.Type(a.kind), Title: http.StatusText(status), Status: status, Detail: a.detail}
}

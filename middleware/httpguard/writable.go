package httpguard

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/wllock/wllock"
)

// errTooLate: the handler would run, and nobody would get its answer.
var errTooLate = fmt.Errorf("httpguard: too little of http.Server.WriteTimeout is left for the handler: %w", wllock.ErrWaitTimeout)

// lastEntry is the key of the time until which a request may be let in, for guards inside of the first.
type lastEntry struct{}

// entry bounds the wait for the lock, by the server's WriteTimeout. A quarter of that is kept for the handler and its answer. It counts
// from the end of the header, which is before the guard; so the first guard of a request takes its own time for that.
//
// The context that waits is also that of the hold, so it has no deadline: whoever stops the timer has it, and it ends nothing any
// more. That is admit, or, if the timer has run first, the wait is over, and admit refuses.
type entry struct {
	until time.Time // zero: no bound
	timer *time.Timer
}

func entryOf(r *http.Request) entry {
	if until, ok := r.Context().Value(lastEntry{}).(time.Time); ok {
		return entry{until: until}
	}
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && s.WriteTimeout > 0 {
		return entry{until: time.Now().Add(s.WriteTimeout - s.WriteTimeout/4)}
	}
	return entry{}
}

// wait returns the context to wait with; end it when the request is over.
func (e *entry) wait(ctx context.Context) (context.Context, func(), error) {
	if e.until.IsZero() {
		return ctx, func() {}, nil
	}
	left := time.Until(e.until)
	if left <= 0 {
		return nil, nil, errTooLate
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, lastEntry{}, e.until))
	e.timer = time.AfterFunc(left, func() { cancel(errTooLate) })
	return ctx, func() { e.timer.Stop(); cancel(nil) }, nil
}

// admit is called with the lock.
func (e *entry) admit() error {
	if e.timer != nil && !e.timer.Stop() {
		return errTooLate
	}
	return nil
}

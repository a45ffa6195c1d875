package httpguard

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/wllock/wllock"
)

// guard is a handler with the lock before it.
type guard struct {
	settings
	locker *wllock.Locker
	name   string
	key    KeyFunc
	next   http.Handler
}

// settings are what New has been told.
type settings struct {
	calls      []wllock.CallOption
	shedStatus int
	bodyBuffer int64 // 0: off
	respond    func(w http.ResponseWriter, r *http.Request, status int, err error)
}

// Option changes what New returns.
type Option func(*settings)

// New returns a middleware that lets a request in when it has the lock name and the key that is made of the request.
//
// The handler gets the ResponseWriter as it is, and a request whose context has the lock (wllock.HeldFrom) and ends when
// the lock is lost. A panic releases the lock and goes on. A request that does not get in is answered as the package's
// documentation says. New panics when something is wrong with its arguments: they are part of the program's text.
func New(locker *wllock.Locker, name string, key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	if locker == nil || key == nil {
		panic("httpguard: New wants a Locker and a key function")
	}
	s := settings{shedStatus: http.StatusTooManyRequests, respond: respond}
	for _, o := range opts {
		o(&s)
	}
	// Whoever falls back has to write a response, which a fallback of the Locker's cannot: see WithResponder.
	s.calls = append(s.calls, wllock.WithFallback(nil))
	return func(next http.Handler) http.Handler {
		return &guard{settings: s, locker: locker, name: name, key: key, next: next}
	}
}

// WithCallOptions sets options of the lock, such as wllock.WithWait. A wllock.WithFallback has no effect: what is answered
// instead is said by WithResponder.
func WithCallOptions(opts ...wllock.CallOption) Option {
	return func(s *settings) { s.calls = append(s.calls, opts...) }
}

// WithShedStatus sets the status of a request for which the queue is full, or that has waited for as long as it may [429].
// Proxies take a host out of service after a few answers from 500 up, so one hot product may take all of them.
func WithShedStatus(status int) Option {
	if status < 400 || status > 599 {
		panic(fmt.Sprintf("httpguard: WithShedStatus(%d): want 400 to 599", status))
	}
	return func(s *settings) { s.shedStatus = status }
}

// WithBodyBuffer reads the body of each request, up to limit bytes, before it queues [off]; one that is longer is refused
// with 413. Over HTTP/1.1 the server notices that a client has left only when the body has been read to its end: without
// this, a POST whose client is gone keeps its place until its turn comes. Up to limit bytes per waiting request is what
// it costs.
func WithBodyBuffer(limit int64) Option {
	if limit <= 0 {
		panic(fmt.Sprintf("httpguard: WithBodyBuffer(%d): want more than 0 bytes", limit))
	}
	return func(s *settings) { s.bodyBuffer = limit }
}

// WithResponder sets what answers a request that is refused, or whose lock was lost before anything was written [a problem
// of RFC 9457]. The status is the proposed one, Retry-After is set where it belongs. The error's text is for logs, not for
// clients: it has a part of the key. After a lock was lost behind a writer that does not tell whether it has begun, w is
// another than the handler's: it leaves out a body that may come to stand behind another one.
func WithResponder(f func(w http.ResponseWriter, r *http.Request, status int, err error)) Option {
	if f == nil {
		panic("httpguard: WithResponder(nil): want a function")
	}
	return func(s *settings) { s.respond = f }
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, err := g.prepare(r)
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	var inside context.Context // nil: the handler was not run
	err = g.locker.Do(r.Context(), g.name, key, func(ctx context.Context) error {
		inside = ctx
		g.serve(ctx, w, r)
		return nil
	}, g.calls...)
	switch {
	case inside == nil:
		g.refuse(w, r, err)
	case err != nil:
		g.lost(w, r, err)
	case inside.Err() != nil && r.Context().Err() == nil: // ended by the lock: overstaid, or the Locker closes
		g.lost(w, r, context.Cause(inside))
	}
}

// prepare does what comes before the queue.
func (g *guard) prepare(r *http.Request) (key string, err error) {
	if g.bodyBuffer > 0 {
		if _, err = buffer(r, g.bodyBuffer); err != nil {
			return "", err
		}
	}
	if key, err = g.key(r); err != nil {
		return "", fmt.Errorf("%w: %w", wllock.ErrInvalidKey, err)
	}
	if key == "" {
		return "", errEmpty
	}
	return key, nil
}

// errEmpty: an empty key is no key. It would be one lock for all who forgot theirs.
var errEmpty = fmt.Errorf("%w: empty", wllock.ErrInvalidKey)

// serve runs the handler with the lock's context.
func (g *guard) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	inner := r.WithContext(ctx)
	defer func() { // what the server and middleware further out look for afterwards: temporary files, the route
		r.MultipartForm, r.Pattern = inner.MultipartForm, inner.Pattern
	}()
	g.next.ServeHTTP(w, inner)
}

// refuse answers a request that was not let in. When its context was cancelled by the loss of a lock further out, the
// client is still there, and gets what that lock's guard would answer.
func (g *guard) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		cause := context.Cause(r.Context())
		if !endsHold(cause) {
			abort(r)
			return
		}
		err = fmt.Errorf("%w: %w", cause, err)
	}
	g.answer(w, r, err)
}

// endsHold reports whether a context's end is that of a lock.
func endsHold(cause error) bool {
	return errors.Is(cause, wllock.ErrLeaseLost) || errors.Is(cause, wllock.ErrLockTimeMax) || errors.Is(cause, wllock.ErrClosed)
}

func (g *guard) answer(w http.ResponseWriter, r *http.Request, err error) {
	status := g.prepareAnswer(w, err)
	g.respond(w, r, status, err)
}

// lost answers for a handler that has returned without a response after its lock was lost. Its silence would go out as
// 200.
func (g *guard) lost(w http.ResponseWriter, r *http.Request, err error) {
	switch begun(w) {
	case yes:
	case no:
		g.refuse(w, r, err)
	case unknown: // not to be aborted either: there may be a response
		t := newTrial(w)
		g.answer(t, r, err)
		t.end()
	}
}

// abort is for a request whose context was cancelled while it waited: nothing is written. To return would not do, for
// then the server writes an empty 200; which says that the work was done, to a client that is still there if it was the
// server who cancelled. Outside of a server (in a test with a recorder) nobody would catch the panic.
func abort(r *http.Request) {
	if r.Context().Value(http.ServerContextKey) != nil {
		panic(http.ErrAbortHandler)
	}
}

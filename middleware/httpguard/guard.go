package httpguard

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/nametext"
)

// guard is a handler that runs under the lock.
type guard struct {
	settings
	locker *wllock.Locker
	name   string
	key    KeyFunc
	next   http.Handler
}

// settings are the options of New.
type settings struct {
	calls      []wllock.CallOption
	shedStatus int
	bodyBuffer int64 // 0: off
	respond    func(w http.ResponseWriter, r *http.Request, status int, err error)
}

// Option configures the middleware.
type Option func(*settings)

// New returns a middleware that runs the handler under the lock with this name and the key that key makes from the request.
//
// The handler gets the ResponseWriter unchanged, and a request whose context carries the lock (wllock.HeldFrom) and ends
// when the lock is lost. A panic releases the lock and continues. A request that does not get the lock is answered as
// described in the package documentation. New panics on invalid arguments,
// such as a name that no lock can have.
func New(locker *wllock.Locker, name string, key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	if locker == nil || key == nil {
		panic("httpguard: New needs a Locker and a key function")
	}
	if err := nametext.CheckName("name", name); err != nil { // every request would be refused, and its client blamed
		panic("httpguard: New: " + err.Error())
	}
	s := settings{shedStatus: http.StatusTooManyRequests, respond: respond}
	for _, o := range opts {
		if o == nil {
			panic("httpguard: New: an option is nil")
		}
		o(&s)
	}
	// A fallback has to write a response, which one of the Locker cannot: see WithResponder.
	s.calls = append(s.calls, wllock.WithFallback(nil))
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("httpguard: the handler is nil")
		}
		return &guard{settings: s, locker: locker, name: name, key: key, next: next}
	}
}

// WithCallOptions sets options of the lock, such as wllock.WithWait. wllock.WithFallback has no effect: use WithResponder.
func WithCallOptions(opts ...wllock.CallOption) Option {
	for _, o := range opts {
		if o == nil {
			panic("httpguard: WithCallOptions: an option is nil")
		}
	}
	return func(s *settings) { s.calls = append(s.calls, opts...) }
}

// WithShedStatus sets the status for load shedding: the queue is full, or the wait has timed out (default 429). Proxies
// eject a host after a few 5xx responses, so with such a status one hot product may take all hosts out of service.
func WithShedStatus(status int) Option {
	if status < 400 || status > 599 {
		panic(fmt.Sprintf("httpguard: WithShedStatus(%d): want 400 to 599", status))
	}
	return func(s *settings) { s.shedStatus = status }
}

// WithBodyBuffer reads the body of each request, up to limit bytes, before the request queues (default: off). A longer body
// is refused with 413. Over HTTP/1.1 the server detects a disconnect only once the body has been read to its end: without
// this option, a POST whose client has left keeps its place until its turn comes. It costs up to limit bytes per waiting
// request.
func WithBodyBuffer(limit int64) Option {
	if limit <= 0 {
		panic(fmt.Sprintf("httpguard: WithBodyBuffer(%d): want more than 0 bytes", limit))
	}
	return func(s *settings) { s.bodyBuffer = limit }
}

// WithResponder sets the function that answers a request that is refused, or whose lock was lost before anything was
// written (default: a problem of RFC 9457). status is the proposed one, and Retry-After is set where it applies. The
// error's text is for logs, not for clients: it contains part of the key. If the lock is lost and the writer cannot say
// whether a response has started, w is a wrapper that drops the body if it could be appended to the handler's.
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
	var inside context.Context // nil: the handler has not run
	// rule M3, rule M5
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
	case inside.Err() != nil && r.Context().Err() == nil: // ended by the lock: held for too long, or the Locker closes
		g.lost(w, r, context.Cause(inside))
	}
}

// prepare does everything that comes before the queue.
func (g *guard) prepare(r *http.Request) (key string, err error) {
	if g.bodyBuffer > 0 { // rule M4
		if _, err = buffer(r, g.bodyBuffer); err != nil {
			return "", err
		}
	}
	if key, err = g.key(r); err != nil {
		return "", fmt.Errorf("%w: %w", wllock.ErrInvalidKey, err)
	}
	if key == "" {
		return "", errEmpty // rule M1
	}
	return key, nil
}

// errEmpty: an empty key would be one common lock for all requests that lack one.
var errEmpty = fmt.Errorf("%w: empty", wllock.ErrInvalidKey)

// serve runs the handler with the lock's context.
func (g *guard) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	inner := r.WithContext(ctx)
	defer func() { // the server and outer middleware look for these afterwards: temporary files, the route
		r.MultipartForm, r.Pattern = inner.MultipartForm, inner.Pattern
	}()
	g.next.ServeHTTP(w, inner) // rule M2
}

// refuse answers a request that was not admitted. If its context was canceled because an outer lock was lost, the client is
// still connected, and gets what the guard of that lock would answer.
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

// endsHold reports whether a context was ended by its lock.
func endsHold(cause error) bool {
	return errors.Is(cause, wllock.ErrLeaseLost) || errors.Is(cause, wllock.ErrLockTimeMax) || errors.Is(cause, wllock.ErrClosed)
}

func (g *guard) answer(w http.ResponseWriter, r *http.Request, err error) {
	status := g.prepareAnswer(w, err)
	g.respond(w, r, status, err)
}

// lost answers for a handler that returned without a response after its lock was lost: net/http would send an empty 200.
func (g *guard) lost(w http.ResponseWriter, r *http.Request, err error) {
	switch begun(w) { // rule H4
	case yes:
	case no:
		g.refuse(w, r, err)
	case unknown: // no abort either: there may be a response
		t := newTrial(w) // rule M2: the only wrapper
		g.answer(t, r, err)
		t.end()
	}
}

// abort ends a request whose context was canceled while it waited, without a response. A plain return would not do: the
// server would write an empty 200, which tells a client that the work was done, and the client is still connected if the
// server canceled. Outside a server, in a test with a recorder, nothing would catch the panic.
func abort(r *http.Request) {
	if r.Context().Value(http.ServerContextKey) != nil {
		panic(http.ErrAbortHandler) // rule M5
	}
}

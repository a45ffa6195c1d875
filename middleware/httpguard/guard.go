package httpguard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/nametext"
	"github.com/wllock/wllock/internal/problem"
)

// guard is a handler that runs under the lock.
type guard struct {
	settings
	locker *wllock.Locker
	name   string
	key    KeyFunc
	keys   KeysFunc // nil: name and key
	next   http.Handler
}

// settings are the options of New and NewAll.
type settings struct {
	calls      []wllock.CallOption
	shedStatus int
	bodyBuffer int64 // the longest body; 0: defaultBodyBuffer, or what a key function reads; negative: off
	respond    func(w http.ResponseWriter, r *http.Request, status int, err error)
}

// Option configures the middleware.
type Option func(*settings)

// New returns a middleware that runs the handler under the lock with this name and the key that the function key makes from the request.
//
// The handler gets the ResponseWriter unchanged, and a request whose context carries the lock (wllock.HeldFrom) and ends when the lock is lost.
// A panic releases the lock and continues. A request that does not get the lock is answered as described in the package documentation. New
// panics on invalid arguments, such as a name that no lock can have.
//
// The lock is released when the handler returns, so the handler must not return while its work continues. The handler of http.TimeoutHandler
// does that, and the middleware panics if it gets that one. Put the guard inside: http.TimeoutHandler(guard(h), d, "").
func New(locker *wllock.Locker, name string, key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	if locker == nil || key == nil {
		panic("httpguard: New needs a Locker and a key function")
	}
	if err := nametext.CheckName("name", name); err != nil { // every request would be refused, and its client blamed
		panic("httpguard: New: " + err.Error())
	}
	return middleware("New", guard{locker: locker, name: name, key: key}, opts)
}

// NewAll is New for several locks at once, as wllock's DoAll acquires them: all or none, in one order for all callers. keys makes 1 to 64 locks
// from the request. An empty key, or too many keys, are the client's mistake (400). A name that no lock can have is the program's mistake (500).
func NewAll(locker *wllock.Locker, keys KeysFunc, opts ...Option) func(http.Handler) http.Handler {
	if locker == nil || keys == nil {
		panic("httpguard: NewAll needs a Locker and a function that returns the keys")
	}
	return middleware("NewAll", guard{locker: locker, keys: keys}, opts)
}

// defaults are the settings without any option.
var defaults = settings{shedStatus: http.StatusTooManyRequests, respond: respond}

// middleware returns what function does of a guard.
func middleware(function string, g guard, opts []Option) func(http.Handler) http.Handler {
	g.settings = defaults
	for _, o := range opts {
		if o == nil {
			panic("httpguard: " + function + ": an option is nil")
		}
		o(&g.settings)
	}
	// A fallback has to write a response, which one of the Locker cannot: see WithResponder.
	g.calls = append(g.calls, wllock.WithFallback(nil))
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("httpguard: the handler is nil")
		}
		if isTimeout(next) {
			panic("httpguard: http.TimeoutHandler returns while its handler goes on, which then has no lock: use http.TimeoutHandler(guard(h), ...)")
		}
		guarded := g
		guarded.next = next
		return &guarded
	}
}

// isTimeout reports whether h is of http.TimeoutHandler, which only its type tells.
func isTimeout(h http.Handler) bool {
	t := reflect.TypeOf(h)
	return t.Kind() == reflect.Pointer && t.Elem().PkgPath() == "net/http" && t.Elem().Name() == "timeoutHandler"
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

// WithShedStatus sets the status for load shedding: the queue is full, or the wait has timed out (default 429). Proxies eject a host after a few
// 5xx responses, so with a 5xx status one hot product may take all hosts out of service.
func WithShedStatus(status int) Option {
	if status < 400 || status > 599 {
		panic(fmt.Sprintf("httpguard: WithShedStatus(%d): want 400 to 599", status))
	}
	return func(s *settings) { s.shedStatus = status }
}

// defaultBodyBuffer is how much of a body is read before the queue if no option says otherwise: more than orders and forms have, and
// less than what a server can afford for each request that waits.
const defaultBodyBuffer = 64 << 10

// WithBodyBuffer sets the maximum length of a body, in bytes (default: 64 KiB, or the limit of BodyJSON). A guard reads each body to its end
// before the request queues, and refuses a longer one with 413, so that a slow client delays no other request.
//
// The body is passed to the handler from memory, and occupies that for each request that waits. A POST whose body has been read to its end
// leaves the queue at once if its client disconnects: over HTTP/1.1 the server detects a disconnect only then. http.Server.ReadTimeout limits
// how long a client may take to send.
func WithBodyBuffer(limit int64) Option {
	if limit <= 0 {
		panic(fmt.Sprintf("httpguard: WithBodyBuffer(%d): want more than 0 bytes", limit))
	}
	return func(s *settings) { s.bodyBuffer = limit }
}

// WithoutBodyBuffer leaves the body to the handler: for uploads that should not begin before the lock is held, and for streams in both
// directions, which would wait for their own end. The handler reads under the lock, so each slow client keeps all others waiting until
// wllock.WithLockTimeMax. When the lock is lost, or held for too long, Read fails, even if the client sends nothing. The error Is that of the
// lock. This needs a writer that supports SetReadDeadline of http.ResponseController.
func WithoutBodyBuffer() Option { return func(s *settings) { s.bodyBuffer = -1 } }

// WithResponder sets the function that answers a request that is refused, or whose lock was lost before anything was written (default: Respond,
// a problem of RFC 9457). status is the proposed status, and Retry-After is set where it applies. The error's text is for logs, not for clients:
// it contains part of the key. If the lock is lost and the writer cannot say whether a response has started, w is a wrapper. It drops the body
// if that could be appended to the handler's.
func WithResponder(f func(w http.ResponseWriter, r *http.Request, status int, err error)) Option {
	if f == nil {
		panic("httpguard: WithResponder(nil): want a function")
	}
	return func(s *settings) { s.respond = f }
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	entry, before := entryOf(r), problem.FieldsOf(w.Header()) // before the body is read
	locks, err := g.prepare(r)
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	waiting, end, err := entry.wait(r.Context())
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	defer end()
	var inside context.Context // nil: the handler has not run
	// rule M3, rule M5
	err = g.do(waiting, locks, func(ctx context.Context) error {
		if err := entry.admit(); err != nil { // rule M8
			return err
		}
		inside = ctx
		g.serve(ctx, w, r)
		return nil
	})
	switch {
	case inside == nil:
		g.refuse(w, r, err)
	case err != nil:
		g.lost(w, r, before, err)
	case endedByLock(inside, r): // held for too long, or the Locker closes
		g.lost(w, r, before, context.Cause(inside))
	}
}

// endedByLock reports whether the lock, and not the request's context, was the first to end the handler's. net/http cancels a request
// when a read of its body fails, and so after heldBody.interrupt.
func endedByLock(inside context.Context, r *http.Request) bool {
	return inside.Err() != nil && !errors.Is(context.Cause(inside), context.Cause(r.Context()))
}

// locks are what a request needs: one key of the guard's name, or several keys.
type locks struct {
	key string
	all []wllock.Resource
}

// do runs fn under the locks.
func (g *guard) do(ctx context.Context, l locks, fn wllock.Func) error {
	if g.keys != nil {
		return g.locker.DoAll(ctx, l.all, fn, g.calls...)
	}
	return g.locker.Do(ctx, g.name, l.key, fn, g.calls...)
}

// prepare does everything that comes before the queue.
func (g *guard) prepare(r *http.Request) (l locks, err error) {
	if g.bodyBuffer > 0 { // rule M4, and before a key function that may read it
		if _, err = buffer(r, g.bodyBuffer); err != nil {
			return l, err
		}
	}
	if l, err = g.locksOf(r); err != nil || g.bodyBuffer != 0 {
		return l, err
	}
	if _, read := inMemory(r); !read {
		_, err = buffer(r, defaultBodyBuffer) // rule M4
	}
	return l, err
}

// locksOf makes the key or the keys of a request.
func (g *guard) locksOf(r *http.Request) (l locks, err error) {
	if g.keys != nil {
		l.all, err = g.keys(r)
	} else {
		l.key, err = g.key(r)
	}
	switch {
	case err != nil:
		return l, fmt.Errorf("%w: %w", wllock.ErrInvalidKey, err)
	case g.keys != nil:
		return l, checkAll(l.all)
	case l.key == "":
		return l, errEmpty // rule M1
	}
	return l, nil
}

// checkAll finds what DoAll would take for the client's mistake and is not, a bad name, and a request without a key.
func checkAll(all []wllock.Resource) error {
	if len(all) == 0 {
		return errEmpty
	}
	for _, r := range all {
		if err := nametext.CheckName("name", r.Name); err != nil {
			return fmt.Errorf("httpguard: %w", err)
		}
	}
	return nil
}

// errEmpty: an empty key would be one common lock for all requests that lack one.
var errEmpty = fmt.Errorf("%w: %w", wllock.ErrInvalidKey, errMissing)

// serve runs the handler with the lock's context.
func (g *guard) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	inner := r.WithContext(ctx)
	if _, read := inMemory(r); !read { // rule M4
		body := newHeldBody(ctx, w, r.Body)
		inner.Body = body
		defer body.end()
	}
	defer func() { // the server and outer middleware look for these afterwards: temporary files, the route
		r.MultipartForm, r.Pattern = inner.MultipartForm, inner.Pattern
	}()
	g.next.ServeHTTP(w, inner) // rule M2
}

// refuse answers a request that was not admitted, unless outer middleware has answered already, as some do when a body is too long. If
// its context was canceled because an outer lock was lost, the client gets what the guard of that lock would answer.
//
// A request that was canceled otherwise is answered, too. Its client may have left, and then nobody gets the answer. It may also be there:
// the server cancels requests when it stops, and net/http does so when a read deadline has passed. Without an answer it would get an
// empty 200, as if the work had been done.
func (s *settings) refuse(w http.ResponseWriter, r *http.Request, err error) { // rule M5
	if begun(w) == yes {
		return
	}
	if cause := context.Cause(r.Context()); endsHold(cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	s.respond(w, r, s.prepareAnswer(w, err), err)
}

// endsHold reports whether a context was ended by its lock.
func endsHold(cause error) bool {
	return errors.Is(cause, wllock.ErrLeaseLost) || errors.Is(cause, wllock.ErrLockTimeMax) || errors.Is(cause, wllock.ErrClosed)
}

// lost answers for a handler that returned without a response after its lock was lost: net/http would send an empty 200. Of the header,
// before is what was there for the handler's answer when the request came.
func (s *settings) lost(w http.ResponseWriter, r *http.Request, before problem.Fields, err error) {
	switch begun(w) { // rule H4
	case yes:
	case no:
		before.Restore(w.Header())
		s.refuse(w, r, err)
	case unknown:
		t := newTrial(w) // rule M2: the only wrapper
		before.Restore(w.Header())
		s.refuse(t, r, err)
		t.end()
	}
}

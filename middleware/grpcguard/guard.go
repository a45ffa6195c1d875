package grpcguard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/heldkey"
	"github.com/wllock/wllock/internal/nametext"
)

// guard is what all four interceptors have in common.
type guard struct {
	locker *wllock.Locker
	name   string
	key    KeyFunc
	keys   KeysFunc // nil: name and key
	calls  []wllock.CallOption
	idle   time.Duration // 0: none
}

// Option configures an interceptor.
type Option func(*guard)

// WithCallOptions sets options of the lock, such as wllock.WithWait. A wllock.WithFallback has no effect.
func WithCallOptions(opts ...wllock.CallOption) Option {
	for _, o := range opts {
		if o == nil {
			panic("grpcguard: WithCallOptions: an option is nil")
		}
	}
	return func(g *guard) { g.calls = append(g.calls, opts...) }
}

// idleTimeout is the default of WithIdleTimeout: longer than a lost packet takes to be sent again, and a tenth of the maximum hold.
const idleTimeout = time.Second

// WithIdleTimeout sets how long the client of a server's stream may send nothing while RecvMsg waits for it under the lock (default one second,
// 0: until the hold ends). After that the stream ends like one whose lock was lost, because an idle client keeps all others waiting. Set it for
// streams whose client pauses while it has the lock. Other calls and clients ignore it. The time that interceptors around the guard spend in
// RecvMsg counts, too, so put slow ones inside the guard.
func WithIdleTimeout(d time.Duration) Option {
	if d < 0 {
		panic(fmt.Sprintf("grpcguard: WithIdleTimeout(%v): want 0 or more", d))
	}
	return func(g *guard) { g.idle = d }
}

func newGuard(locker *wllock.Locker, name string, key KeyFunc, opts []Option) *guard {
	if locker == nil || key == nil {
		panic("grpcguard: an interceptor needs a Locker and a key function")
	}
	if err := nametext.CheckName("name", name); err != nil { // every call would be refused, and its caller blamed
		panic("grpcguard: an interceptor: " + err.Error())
	}
	return (&guard{locker: locker, name: name, key: key, idle: idleTimeout}).with(opts)
}

func newGuardAll(locker *wllock.Locker, keys KeysFunc, opts []Option) *guard {
	if locker == nil || keys == nil {
		panic("grpcguard: an interceptor needs a Locker and a function that returns the keys")
	}
	return (&guard{locker: locker, keys: keys, idle: idleTimeout}).with(opts)
}

func (g *guard) with(opts []Option) *guard {
	for _, o := range opts {
		if o == nil {
			panic("grpcguard: an option of an interceptor is nil")
		}
		o(g)
	}
	g.calls = append(g.calls, wllock.WithFallback(nil)) // a fallback could not make a response
	return g
}

// locks are what a call needs: one key of the guard's name, or several keys.
type locks struct {
	key string
	all []wllock.Resource
}

// errEmpty: an empty key would be one common lock for all calls that lack one.
var errEmpty = fmt.Errorf("%w: empty", wllock.ErrInvalidKey)

// locksOf makes the key or the keys of a call.
func (g *guard) locksOf(ctx context.Context, method string, req any) (l locks, err error) {
	if g.keys != nil {
		l.all, err = g.keys(ctx, method, req)
	} else {
		l.key, err = g.key(ctx, method, req)
	}
	switch {
	case errors.Is(err, ErrNoMessage):
		return l, err
	case err != nil:
		return l, fmt.Errorf("%w: %w", wllock.ErrInvalidKey, err)
	case g.keys != nil:
		return l, checkAll(l.all)
	case l.key == "":
		return l, errEmpty // rule M1
	}
	return l, nil
}

// checkAll finds what DoAll would take for the caller's mistake and is not: a bad name.
func checkAll(all []wllock.Resource) error {
	for _, r := range all {
		if err := nametext.CheckName("name", r.Name); err != nil {
			return fmt.Errorf("grpcguard: %w", err)
		}
	}
	return nil
}

// do runs fn under the locks.
func (g *guard) do(ctx context.Context, l locks, fn wllock.Func) error {
	if g.keys != nil {
		return g.locker.DoAll(ctx, l.all, fn, g.calls...)
	}
	return g.locker.Do(ctx, g.name, l.key, fn, g.calls...)
}

// run runs f under the lock and returns its error. A refusal, which takes precedence, says that the lock was not acquired,
// or was lost.
func (g *guard) run(ctx context.Context, l locks, f func(ctx context.Context) error) (refused *refusal, err error) {
	var inside context.Context
	lock := g.do(ctx, l, func(held context.Context) error { // rule M3, rule M5
		inside = held
		err = f(held)
		return nil
	})
	if lock == nil {
		lock = cutShort(ctx, inside, err)
	}
	return refuse(lock), err // rule H4
}

// cutShort returns why the lock has ended the context of a call that failed, or nil if it has not. The error says that the
// call had been admitted.
func cutShort(outside, inside context.Context, err error) error {
	if err == nil || inside.Err() == nil || outside.Err() != nil {
		return nil
	}
	e := &wllock.Error{Op: "hold", Tier: wllock.TierDistributed, Ran: true, Err: context.Cause(inside)}
	if h, ok := wllock.HeldFrom(inside); ok { // always
		e.LocalWait, e.DistributedWait = h.LocalWait(), h.DistributedWait()
		e.Waited = e.LocalWait + e.DistributedWait
	}
	if l, ok := inside.Value(heldkey.Key).(interface{ Shown() string }); ok { // always
		e.Key = l.Shown() // and not Held.Key, which is not redacted
	}
	return e
}

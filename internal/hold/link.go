package hold

import (
	"context"

	"github.com/wllock/wllock/internal/heldkey"
)

// Link is one lock in the chain of those that a context carries: the hold itself, or a nested guard's reference to it.
type Link interface {
	Hold() *Hold
	Shown() string // Hold().Shown(), for modules that do not know this package
	outer() context.Context
}

// Innermost returns the innermost lock that ctx carries, and nil if there is none.
func Innermost(ctx context.Context) Link {
	switch held := ctx.Value(heldkey.Key).(type) {
	case Link:
		return held
	case heldkey.Lent:
		if l, ok := held.Held.(Link); ok {
			return lent{l}
		}
	}
	return nil
}

// Around returns the lock around l, and nil if there is none.
func Around(l Link) Link {
	around := Innermost(l.outer())
	if around != nil && IsLent(l) {
		return lent{around}
	}
	return around
}

// lent is a lock in a context that may by now be that of another request: see heldkey.Lent.
type lent struct{ Link }

// IsLent reports that the lock may be that of another request, so that the caller must not take it for its own.
func IsLent(l Link) bool {
	_, is := l.(lent)
	return is
}

// Value implements context.Context.
func (h *Hold) Value(key any) any {
	if key == heldkey.Key {
		return h
	}
	return h.value(key)
}

// Hold returns h.
func (h *Hold) Hold() *Hold            { return h }
func (h *Hold) outer() context.Context { return h.parent }

// nested is the context of a guard inside its own lock with another lock between: the innermost lock comes first.
type nested struct {
	context.Context
	hold *Hold
}

// Nested returns a context that carries h as its innermost lock, and is ctx in all else.
func Nested(ctx context.Context, h *Hold) context.Context { return &nested{Context: ctx, hold: h} }

// Value implements context.Context.
func (n *nested) Value(key any) any {
	if key == heldkey.Key {
		return n
	}
	return n.Context.Value(key)
}

// AfterFunc lets package context derive from this context without a goroutine for each derived one.
func (n *nested) AfterFunc(f func()) (stop func() bool) { return AfterFunc(n.Context, f) }

func (n *nested) Hold() *Hold            { return n.hold }
func (n *nested) Shown() string          { return n.hold.Shown() }
func (n *nested) outer() context.Context { return n.Context }

// AfterFunc is context.AfterFunc for a parent that may follow an outer hold's context through contexts that only carry
// values. For those, package context would keep a goroutine until stop is called, which is, for a context that has been closed, when it
// is collected. f may be called by the goroutine that ends the outer hold's context.
func AfterFunc(parent context.Context, f func()) (stop func() bool) {
	at := Innermost(parent)
	for n, ok := at.(*nested); ok; n, ok = at.(*nested) {
		at = Innermost(n.Context)
	}
	if at != nil {
		if outer := at.Hold().context(); outer.Done() == parent.Done() { // nothing between them ends earlier
			return outer.AfterFunc(f)
		}
	}
	return context.AfterFunc(parent, f)
}

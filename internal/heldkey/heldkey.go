// Package heldkey has the context key of the innermost lock, for adapters of frameworks whose contexts find only what was put into them.
//
// A framework may use such a context again for another request, while a goroutine of the first one still has it. So what an adapter puts there
// is no lock, but a Lent.
package heldkey

// Key is a string, because the context of gin knows values of its own by strings only. The value is package wllock's affair.
const Key = "github.com/wllock/wllock/held"

// Lent is the value of Key in a context that may serve another request next. Held is what the context of this request has there. A caller finds
// no lock in it, and is refused the locks that it names.
type Lent struct{ Held any }

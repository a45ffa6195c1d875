package hold

import (
	"context"
	"fmt"
	"io"
)

// What applications print, in logs and by mocks, names the lock, but no key: keys may hold personal data. All verbs are
// covered, because fmt would walk the fields, which other goroutines write.

// String names the context as those of package context are named, which ask their parents for it.
func (h *Hold) String() string { return contextName(h.parent) + ".wllock(" + h.name.Text + ")" }

// Format implements fmt.Formatter.
func (h *Hold) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, h.String()) }

// String names the context by its innermost lock.
func (a *All) String() string {
	last := a.keys[len(a.keys)-1].hold
	return contextName(a.parent) + ".wllock(" + last.name.Text + ", ...)"
}

// Format implements fmt.Formatter.
func (a *All) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, a.String()) }

func (n *nested) String() string { return contextName(n.Context) + ".wllock(" + n.hold.name.Text + ")" }

// Format implements fmt.Formatter.
func (n *nested) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, n.String()) }

func contextName(ctx context.Context) string {
	if s, ok := ctx.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", ctx)
}

package wllock

import (
	"context"
	"fmt"
	"io"
)

// What applications print, in logs and by mocks, names the lock, but no key: keys may hold personal data. All verbs are
// covered, because fmt would walk the fields, which other goroutines write.

// String names the context as those of package context are named, which ask their parents for it.
func (h *hold) String() string { return contextName(h.parent) + ".wllock(" + h.name.Text + ")" }

// Format implements fmt.Formatter.
func (h *hold) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, h.String()) }

// String names the context by its innermost lock.
func (b *bundle) String() string {
	last := b.members[len(b.members)-1].hold
	return contextName(b.parent) + ".wllock(" + last.name.Text + ", ...)"
}

// Format implements fmt.Formatter.
func (b *bundle) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, b.String()) }

func (n *nested) String() string { return contextName(n.Context) + ".wllock(" + n.hold.name.Text + ")" }

// Format implements fmt.Formatter.
func (n *nested) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, n.String()) }

// Format implements fmt.Formatter: it prints system and name, and no key.
func (h Held) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "wllock.Held(%s:%s)", h.hold.observer.System, h.hold.name.Text)
}

// Format implements fmt.Formatter: it prints the system.
func (l *Locker) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "wllock.Locker(%s)", l.names.system)
}

func contextName(ctx context.Context) string {
	if s, ok := ctx.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", ctx)
}

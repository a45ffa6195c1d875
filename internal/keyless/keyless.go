// Package keyless makes texts of errors that can hold no key of a lock, for who shows errors and must not show keys.
//
// Nothing is searched for in a text, because a service may write a key in any form: quoted, escaped, cut, in a path. A text is put together
// of parts that are known to hold none: constants of this library and of the standard library, numbers, addresses, codes of services.
// [Redacted] stands for all others.
package keyless

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
)

// Redacted stands for a text that may hold a key.
const Redacted = "(redacted)"

// Error is an error that knows what of its text can hold no key. Other packages implement it, too.
type Error interface {
	error
	// Keyless returns the text without what may hold a key. safe: err itself, and all that it wraps, holds no key in any way.
	Keyless() (text string, safe bool)
}

// Text returns the text of err without what may hold a key. safe: err itself, and all that it wraps, holds no key in any way.
func Text(err error) (text string, safe bool) {
	if known, is := err.(Error); is {
		return known.Keyless()
	}
	inner := unwrap(err)
	if len(inner) == 1 && inner[0].Error() == err.Error() { // it adds no words
		text, _ = Text(inner[0])
		return text, false
	}
	safe = isConstant(err) || isOfNetwork(err)
	var texts []string
	for _, e := range inner {
		t, all := Text(e)
		safe = safe && all
		if t = strings.TrimSuffix(t, Redacted); t != "" {
			texts = append(texts, strings.TrimSpace(t))
		}
	}
	if safe {
		return err.Error(), true
	}
	return strings.TrimSpace(strings.Join(texts, "; ") + " " + Redacted), false
}

// Of returns err, if it is safe, and else an error with its text as Text has it. errors.Is finds all that err is. errors.As, and who prints
// what an error wraps, finds only what is safe.
func Of(err error) error {
	text, safe := Text(err)
	if safe {
		return err
	}
	return &redacted{err, text, partsOf(err)}
}

type redacted struct {
	err   error
	text  string
	parts []error
}

func (r *redacted) Error() string                     { return r.text }
func (r *redacted) Is(target error) bool              { return errors.Is(r.err, target) }
func (r *redacted) Unwrap() []error                   { return r.parts }
func (r *redacted) Keyless() (text string, safe bool) { return r.text, true }

// GoString is Error for %#v.
func (r *redacted) GoString() string { return r.text }

// partsOf returns what is safe of err and of what it wraps.
func partsOf(err error) (all []error) {
	if _, safe := Text(err); safe {
		return []error{err}
	}
	for _, e := range unwrap(err) {
		all = append(all, partsOf(e)...)
	}
	return all
}

func unwrap(err error) []error {
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return []error{inner}
		}
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	}
	return nil
}

// isConstant reports that err is one of the standard library's that have one text.
func isConstant(err error) bool {
	switch err {
	case context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, os.ErrDeadlineExceeded,
		errors.ErrUnsupported:
		return true
	}
	return false
}

// isOfNetwork reports that err is of a type of the layers below a client, which know addresses and no key, or of the Go runtime.
func isOfNetwork(err error) bool {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.PkgPath() {
	case "net", "syscall", "internal/poll", "crypto/tls", "crypto/x509", "runtime":
		return true
	case "os":
		return t.Name() == "SyscallError"
	}
	return false
}

// Errorf is fmt.Errorf for a format and arguments that hold no key. What of its error arguments may be shown is judged apart.
func Errorf(format string, args ...any) error {
	return &formatted{fmt.Errorf(format, args...), format, args}
}

// formatted is used by its address, because callers compare errors.
type formatted struct {
	error
	format string
	args   []any
}

func (f *formatted) Unwrap() error    { return f.error }
func (f *formatted) GoString() string { return f.Error() }

func (f *formatted) Keyless() (text string, safe bool) {
	safe = true
	shown := make([]any, len(f.args))
	for i, a := range f.args {
		shown[i] = a
		if err, is := a.(error); is {
			t, all := Text(err)
			shown[i], safe = errors.New(t), safe && all
		}
	}
	return fmt.Errorf(f.format, shown...).Error(), safe
}

// Known returns err with a text that can hold no key, in place of its own: the code of a service's answer, for example.
func Known(err error, text string) error { return &known{err, text} }

type known struct {
	error
	text string
}

func (k *known) Unwrap() error    { return k.error }
func (k *known) GoString() string { return k.Error() }

func (k *known) Keyless() (text string, safe bool) {
	if k.text == k.Error() {
		return k.text, true
	}
	return k.text + " " + Redacted, false
}

package distributed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/wllock/wllock/internal/keyless"
)

// ErrNotHeld answers a Break of a lock that is free, or whose holders are not those that were found.
var ErrNotHeld = keyless.Errorf("lock is not held")

// Inspector is an optional ability of a Backend, for people and their tools: it says which instances hold a lock and wait for it, and ends a
// lease by force. Do not base a program's decisions on it: the answer may be out of date when it is read.
type Inspector interface {
	Backend
	// Inspect returns what the service knows of a key. It changes nothing. For a key that is not in use it returns no error.
	Inspect(ctx context.Context, key string) (Inspection, error)
	// List returns a page of the keys in use that begin with prefix, which is "system:" or "system:name:", in any order. cursor is "" for the
	// first page, and then the next of the page before. next is "" after the last page. A page may have fewer than limit keys, none, or a few
	// more. Keys that come or go meanwhile may be missed, or be in two pages. errors.ErrUnsupported: the service cannot list. For each key List returns what Inspect does, except the names of
	// waiters and of all holders but one.
	List(ctx context.Context, prefix, cursor string, limit int) (page []Inspection, next string, err error)
	// Break ends what Inspect found: an exclusive lease, or the leases of all readers with those that have joined since. It never ends the lease
	// of a later holder: then, and if the lock is free, the error Is ErrNotHeld. The head of the queue is granted the lock as after a release.
	// The holder loses the lease at once if it can be reached, otherwise at its next renewal. by names the author of the break. The service
	// keeps by and reason for BrokenMemory, and Inspect shows them.
	Break(ctx context.Context, found Inspection, by, reason string) (Breaking, error)
}

// Inspection is what a service knows of a key at one moment. What a service does not know is zero.
type Inspection struct {
	Key         string
	Mode        Mode      // of the holders
	Foreign     bool      // the holder is a client other than wllock. At most the time left of its lock is known
	Since       time.Time // when the holder, or the first of the readers, acquired the lock
	Fence       uint64    // no holder has had a larger one
	Holders     []Holder  // none: the lock is free
	MoreHolders int       // beside Holders
	Waiters     []Waiter  // instances, in the order of the queue
	MoreWaiters int       // beside Waiters
	Broken      *Breaking // the last Break, if it is remembered
	State       string    // the holders, in the service's own form, for Break
}

// Held reports whether the lock is held.
func (i Inspection) Held() bool { return len(i.Holders) > 0 }

// Holder is an instance that has a lease.
type Holder struct {
	Instance string
	Since    time.Time     // when it acquired the lease
	Left     time.Duration // until it expires, unless it is renewed. Negative: never. 0: not known
	Fence    uint64        // the first fence of the lease
}

// Waiter is an instance in the queue.
type Waiter struct {
	Instance string
	Mode     Mode
	Limit    int       // the limit of the permit that it waits for. 0: it waits for no permit, or the service does not keep the limit
	Since    time.Time // when it queued
}

// Holder names the holder. Of several it names one, and how many more there are. It returns "" if the holder is not known.
func (i Inspection) Holder() string {
	if len(i.Holders) == 0 {
		return ""
	}
	return HolderText(i.Holders[0].Instance, len(i.Holders)-1+i.MoreHolders)
}

// HolderText names one holder and says how many more there are.
func HolderText(instance string, more int) string {
	if instance == "" || more <= 0 {
		return instance
	}
	return fmt.Sprintf("%s and %d more", instance, more)
}

// Breaking is the record of a lease that was ended by force.
type Breaking struct {
	At     time.Time
	By     string // the author of the break: an instance, a process, a person
	Reason string
	Holder string // the holder of the lease: see Inspection.Holder
	Fence  uint64 // the holder has no larger fence, and all later ones are larger. 0: there are no fences
}

const (
	// BrokenMemory is how long a service remembers a Break, for Inspect.
	BrokenMemory = 24 * time.Hour
	// maxReason is the length of the longest reason, in bytes, and of who breaks.
	maxReason = 200
	// MaxNamed is the maximum number of holders, and of waiters, that an Inspection names: more than a person reads, and cheap to collect.
	MaxNamed = 64
)

// NewBreaking checks the arguments of Break and returns its record, without At and Fence.
func NewBreaking(found Inspection, by, reason string) (Breaking, error) {
	for what, text := range map[string]string{"by": by, "reason": reason} {
		if text = strings.TrimSpace(text); text == "" || len(text) > maxReason || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			return Breaking{}, fmt.Errorf("break: %s: want 1 to %d bytes of text in one line", what, maxReason)
		}
	}
	switch {
	case found.Foreign:
		return Breaking{}, errors.New("break: the lock is held by a client that is not wllock: end it by that client's means")
	case !found.Held() || found.State == "":
		return Breaking{}, keyless.Errorf("break: %w", ErrNotHeld)
	}
	return Breaking{By: by, Reason: reason, Holder: found.Holder()}, nil
}

// InspectorOf returns the Inspector of b, or of the backends that b wraps: a decorator has a method Unwrap() Backend.
func InspectorOf(b Backend) (Inspector, bool) { return inside[Inspector](b) }

// HeldError is an ErrHeld from a backend whose answer named the holder.
type HeldError struct {
	Holder string
	Told   bool // the backend has told the holder, or will, that its lease is Wanted, or the holder knows that an instance waits
}

// Held returns ErrHeld, as a HeldError if the holder is known.
func Held(holder string) error {
	if holder == "" {
		return ErrHeld
	}
	return &HeldError{Holder: holder}
}

// HeldAndTold is Held for a backend that tells the holder: see Wanted.
func HeldAndTold(holder string) error { return &HeldError{holder, true} }

// Error implements error.
func (e *HeldError) Error() string { return ErrHeld.Error() }

// Keyless returns the text of e that is shown where keys are redacted: a holder is no key.
func (e *HeldError) Keyless() (text string, safe bool) { return e.Error(), true }

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

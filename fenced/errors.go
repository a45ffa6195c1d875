package fenced

import (
	"errors"
	"fmt"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/nametext"
)

// Reasons why a transaction was not claimed. Match them with errors.Is.
var (
	// ErrFenced: a later holder of the lock has claimed the key, so this holder has lost it. It comes as an *Error, which Is also
	// wllock.ErrLeaseLost.
	ErrFenced = errors.New("a later holder of the lock has claimed the key")
	// ErrNoHold: the context carries no lock, or none of those that For names, or the lock was released.
	ErrNoHold = errors.New("the context carries no lock that is held")
	// ErrNoFence: the lock has no fence.
	ErrNoFence = errors.New("the lock has no fence")
	// ErrUnordered: the lock is a permit. The fences of permits that are held at the same time have no order.
	ErrUnordered = errors.New("fences of permits are in no order")
)

// Error says which fence was refused, and by which larger one.
type Error struct {
	Key   string // system:name:key, as WithKeyRedaction shows it
	Fence uint64 // the fence of the hold
	Known uint64 // the largest fence in the table
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("fenced: %s: %v: it has fence %d, and this hold %d", nametext.Quote(e.Key), ErrFenced, e.Known, e.Fence)
}

// Is reports whether target is ErrFenced or wllock.ErrLeaseLost.
func (e *Error) Is(target error) bool {
	return target == ErrFenced || target == distributed.ErrLeaseLost
}

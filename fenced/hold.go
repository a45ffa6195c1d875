package fenced

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/hold"
	"github.com/wllock/wllock/internal/nametext"
)

// Lock names a lock for a transaction to claim: see For.
type Lock struct{ name, key string }

// For returns the Lock with that name and key. Without it a transaction claims all locks that its context carries.
func For(name, key string) Lock { return Lock{name, key} }

// claim is what the database is told of one hold.
type claim struct {
	hold   *hold.Hold
	writer uint64 // its fence, if it is exclusive. Else 0
	reader uint64 // its fence, if it is shared. Else 0
}

func (c claim) fence() uint64 { return c.writer + c.reader }

// claimsOf returns the claims of the locks that ctx carries, in the order of their keys: two transactions do not wait for each other's
// claims. One that is held through nested guards is claimed once.
func claimsOf(ctx context.Context, only []Lock) (claims []claim, left time.Duration, err error) {
	wanted := func(h *hold.Hold) bool {
		return len(only) == 0 || slices.ContainsFunc(only, func(l Lock) bool { return h.Is(l.name, l.key) })
	}
	for l := hold.Innermost(ctx); l != nil && !hold.IsLent(l); l = hold.Around(l) {
		h := l.Hold()
		known := slices.ContainsFunc(claims, func(c claim) bool { return c.hold.Key() == h.Key() })
		if known || !wanted(h) {
			continue
		}
		if err := refusal(h); err != nil {
			return nil, 0, fmt.Errorf("fenced: %s: %w", nametext.Quote(h.Shown()), err)
		}
		c := claim{hold: h}
		if h.Mode() == distributed.Shared {
			c.reader = h.Fence()
		} else {
			c.writer = h.Fence()
		}
		claims = append(claims, c)
		if until := time.Until(h.Until()); left == 0 || until < left {
			left = until
		}
	}
	for _, l := range only {
		if !slices.ContainsFunc(claims, func(c claim) bool { return c.hold.Is(l.name, l.key) }) {
			return nil, 0, fmt.Errorf("fenced: %s: %w: call Tx inside Do, with the context that the function gets",
				nametext.Quote(l.name), ErrNoHold)
		}
	}
	if len(claims) == 0 {
		return nil, 0, fmt.Errorf("fenced: %w: call Tx inside Do, with the context that the function gets", ErrNoHold)
	}
	slices.SortFunc(claims, func(a, b claim) int { return cmp.Compare(a.hold.Key(), b.hold.Key()) })
	return claims, left, nil
}

// refusal says why a hold cannot be claimed. nil: it can.
func refusal(h *hold.Hold) error {
	switch {
	case !h.Open():
		return fmt.Errorf("%w: it was released", ErrNoHold)
	case h.Permits() > 0:
		return fmt.Errorf("%w: guard the write by a lock, without Permits", ErrUnordered)
	case h.Fence() == 0 && h.Degraded():
		return fmt.Errorf("%w: it was acquired while the backend was unreachable (LocalOnly): use FailClosed for what writes", ErrNoFence)
	case h.Fence() == 0:
		return fmt.Errorf("%w: its backend has none, so use another. Redlock has fences with WithQuorumFences", ErrNoFence)
	}
	return h.Check()
}

// Package heldcheck has checks of locks, before writes.
package heldcheck

import (
	"context"
	"log"
	"log/slog"
	"time"

	"github.com/wllock/wllock"
)

func write(ctx context.Context, fence uint64) error { return ctx.Err() }

func statement(ctx context.Context, held *wllock.Held) error {
	held.Err() // want `the answer of Err is ignored, so nothing is checked: what follows runs without the lock, too. Write if err := held.Err\(\); err != nil { return err }`
	return write(ctx, held.Fence())
}

func blank(ctx context.Context, lock *wllock.Lock) error {
	_ = lock.Err() // want `the answer of Err is assigned to _`
	return write(ctx, lock.Fence())
}

func deferred(ctx context.Context, held *wllock.Held) error {
	defer held.Err() // want `the answer of Err is lost when the function returns`
	return write(ctx, held.Fence())
}

func fence(ctx context.Context, held *wllock.Held) error {
	held.Fence() // want `the result of Held.Fence is ignored, and the call does nothing else. Err says whether the lock is still held, and a store that is sent the Fence refuses late writes`
	return write(ctx, 0)
}

func from(ctx context.Context) error {
	wllock.HeldFrom(ctx) // want `the result of HeldFrom is ignored`
	return write(ctx, 0)
}

func stale(ctx context.Context, held *wllock.Held) error {
	err := held.Err() // want `the lock is checked before line \d+, which takes its time, and the answer is used after it: the lock may be lost by then. Call Err right before the step that needs the lock`
	if err := write(ctx, 0); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	return write(ctx, held.Fence())
}

func staleAnswer(ctx context.Context, held *wllock.Held) error {
	alive := held.Err() == nil // want `the lock is checked before line \d+`
	time.Sleep(time.Minute)
	if alive {
		return write(ctx, held.Fence())
	}
	return nil
}

func logged(ctx context.Context, held *wllock.Held) error {
	if err := held.Err(); err != nil { // want `a lost lock is noted here, and line \d+ goes on without it while another process may hold it. Return the error`
		log.Println("lost:", err)
	}
	return write(ctx, held.Fence())
}

func loggedBefore(ctx context.Context, held *wllock.Held) error {
	lost := held.Err()
	if lost != nil { // want `a lost lock is noted here`
		slog.WarnContext(ctx, "lost", "error", lost)
	}
	return write(ctx, held.Fence())
}

// From here on nothing is wrong.

func checked(ctx context.Context, held *wllock.Held) error {
	if err := held.Err(); err != nil {
		log.Println("lost:", err)
		return err
	}
	return write(ctx, held.Fence())
}

func fatal(ctx context.Context, held *wllock.Held) error {
	if err := held.Err(); err != nil {
		log.Fatal(err)
	}
	return write(ctx, held.Fence())
}

func remembered(ctx context.Context, held *wllock.Held) error {
	lost := false
	if err := held.Err(); err != nil {
		slog.WarnContext(ctx, "lost", "error", err)
		lost = true
	}
	if lost {
		return nil
	}
	return write(ctx, held.Fence())
}

func fresh(ctx context.Context, held *wllock.Held) error {
	err := held.Err()
	slog.InfoContext(ctx, "checked")
	undo := func() error { return write(ctx, 0) }
	defer undo()
	if err != nil {
		return err
	}
	return write(ctx, held.Fence())
}

func compared(ctx context.Context, held *wllock.Held) {
	before := held.Err()
	err := write(ctx, held.Fence())
	after := held.Err()
	slog.InfoContext(ctx, "written", "error", err, "before", before, "after", after)
}

func onlyToLog(ctx context.Context, held *wllock.Held) {
	if err := write(ctx, held.Fence()); err == nil {
		return
	}
	if err := held.Err(); err != nil {
		slog.WarnContext(ctx, "lost", "error", err)
	}
}

func until(ctx context.Context, held *wllock.Held) error {
	end := held.Until() // which only moves forward
	if err := write(ctx, 0); err != nil || time.Now().After(end) {
		return err
	}
	return write(ctx, held.Fence())
}

func always(ctx context.Context) error {
	held, _ := wllock.HeldFrom(ctx)
	return write(ctx, held.Fence())
}

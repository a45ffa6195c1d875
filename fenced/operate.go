package fenced

import (
	"context"
	"fmt"
	"time"
)

// leastSweep is the smallest age that Sweep takes.
const leastSweep = time.Minute

// Migrate creates the table unless it exists. Several processes may call it at once.
func (g *Guard) Migrate(ctx context.Context) error {
	statement := g.set.text(ddl[g.set.dialect])
	_, err := g.db.ExecContext(ctx, statement)
	if err != nil { // of two that make the table at once, PostgreSQL refuses one
		_, err = g.db.ExecContext(ctx, statement)
	}
	if err != nil {
		return fmt.Errorf("fenced: migrate: %w", err)
	}
	return nil
}

// Sweep deletes the rows of keys that were last claimed longer than age ago, at least a minute, and returns their number. A holder that was
// paused for longer than age is then no longer refused, unless another holder claims first.
func (g *Guard) Sweep(ctx context.Context, age time.Duration) (int64, error) {
	if age < leastSweep {
		return 0, fmt.Errorf("fenced: sweep: %v is too short an age: want %v or more, and more than any process may pause", age, leastSweep)
	}
	done, err := g.db.ExecContext(ctx, g.set.text(sweep[g.set.dialect]), int64(age/time.Second))
	if err != nil {
		return 0, fmt.Errorf("fenced: sweep: %w", err)
	}
	return done.RowsAffected()
}

// Forget deletes the row of a key, system:name:key. An operator needs it after the lock's backend has lost its data: then fences start again,
// and the table refuses them. Call it only when no earlier holder can be left, for example when the longest lease TTL has passed since.
func (g *Guard) Forget(ctx context.Context, key string) error {
	if _, err := g.db.ExecContext(ctx, g.set.text(forget[g.set.dialect]), key); err != nil {
		return fmt.Errorf("fenced: forget: %w", err)
	}
	return nil
}

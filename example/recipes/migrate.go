package recipes

import (
	"context"

	"github.com/pressly/goose/v3"

	"github.com/wllock/wllock"
)

// Migrate applies the migrations that are missing. Every pod calls it before it serves.
func Migrate(ctx context.Context, l *wllock.Locker, database string, migrations *goose.Provider) error {
	return l.Do(ctx, "migrations", database, func(ctx context.Context) error {
		_, err := migrations.Up(ctx) // ctx ends if the lock is lost
		return err
	}, wllock.WithLockTimeMax(0)) // for as long as they take
}

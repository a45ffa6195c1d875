package doors

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"

	"github.com/wllock/wllock"
)

// Goose is a lock.Locker of goose (goose.WithLocker), also for SQLite and other databases for which goose has none. While a provider applies
// migrations, it holds system:Name:Key, for as long as they take. Each provider has a Goose of its own. The context of Up, or WithWait, limits
// the wait.
//
// goose goes on after its lock was lost, and Up returns an error that matches wllock.ErrLeaseLost when it is done. To stop it, run Up inside
// Locker.Do with the same name and key, and WithLockTimeMax(0): its context ends with the lock, and the two are one lock.
//
// With SQLite the locks are in another file than the data: a migration that writes for longer than T would keep the holder from renewing its
// lease. While goose waits it has a connection of its pool, so a backend on the same pool (sqllock.New) needs more than one.
type Goose struct {
	Locker  *wllock.Locker
	Name    string              // second part of the lock's name: "migrations"
	Key     string              // one for each database
	Options []wllock.CallOption // WithWait

	held atomic.Pointer[wllock.Lock]
}

// Lock implements lock.Locker.
func (g *Goose) Lock(ctx context.Context, _ *sql.DB) error {
	lock, err := g.Locker.Acquire(ctx, g.Name, g.Key, append([]wllock.CallOption{wllock.WithLockTimeMax(0)}, g.Options...)...)
	if err == nil && !g.held.CompareAndSwap(nil, lock) { // only inside a lock of the same key
		err = errors.Join(errors.New("doors: goose: Lock while locked: want a Goose for each provider"), release(lock))
	}
	return err
}

// Unlock implements lock.Locker.
func (g *Goose) Unlock(context.Context, *sql.DB) error {
	lock := g.held.Swap(nil)
	if lock == nil {
		return errors.New("doors: goose: Unlock without Lock")
	}
	return release(lock)
}

package doors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/wllock/wllock"
)

// Migrate is a Driver of golang-migrate with another lock, system:Name:Key. The Driver's own lock is not taken. A process that waits for an
// advisory lock of PostgreSQL is in a transaction, for whose end CREATE INDEX CONCURRENTLY waits. Where the lock is a row of a table, a dead
// process keeps it for ever.
//
// Wait is shorter than LockTimeout of migrate.Migrate, which goes away then. A lock that comes later is held until Close. If migrations take
// longer, raise both.
//
// The migration in which the lock is lost is finished and noted. Then golang-migrate stops with ErrLeaseLost. Meanwhile the database is dirty,
// and the process that has the lock next stops with ErrDirty.
type Migrate struct {
	database.Driver
	Locker *wllock.Locker
	Name   string        // second part of the lock's name: "migrations"
	Key    string        // one for each database
	Wait   time.Duration // for the lock. 0: 10 s, for the LockTimeout of 15 s, which is the default

	held atomic.Pointer[wllock.Lock]
}

// migrateWait is the default of Wait.
const migrateWait = 10 * time.Second

// Open implements database.Driver: what it opens has the same lock.
func (m *Migrate) Open(url string) (database.Driver, error) {
	driver, err := m.Driver.Open(url)
	if err != nil {
		return nil, err
	}
	return &Migrate{Driver: driver, Locker: m.Locker, Name: m.Name, Key: m.Key, Wait: m.Wait}, nil
}

// Close implements database.Driver.
func (m *Migrate) Close() error {
	_ = m.Unlock() // a lock that came too late
	return m.Driver.Close()
}

// Lock implements database.Driver. The error Is database.ErrLocked.
func (m *Migrate) Lock() error {
	if m.held.Load() != nil {
		return database.ErrLocked
	}
	lock, err := m.Locker.Acquire(context.Background(), m.Name, m.Key,
		wllock.WithWait(cmp.Or(m.Wait, migrateWait)), wllock.WithLockTimeMax(0))
	if err != nil {
		return fmt.Errorf("%w: %w", database.ErrLocked, err)
	}
	m.held.Store(lock)
	return nil
}

// Unlock implements database.Driver. That the lock was lost is no error here: after an error a migrate.Migrate can not be used again.
func (m *Migrate) Unlock() error {
	lock := m.held.Swap(nil)
	if lock == nil {
		return database.ErrNotLocked
	}
	_ = release(lock)
	return nil
}

// SetVersion implements database.Driver. A dirty version begins a migration, and needs the lock. A clean one says what was done, whoever has
// the lock now.
func (m *Migrate) SetVersion(version int, dirty bool) error {
	if dirty {
		if err := m.lost(); err != nil {
			return err
		}
		return m.Driver.SetVersion(version, true)
	}
	return errors.Join(m.Driver.SetVersion(version, false), m.lost())
}

// Drop implements database.Driver.
func (m *Migrate) Drop() error {
	if err := m.lost(); err != nil {
		return err
	}
	return m.Driver.Drop()
}

// lost returns an error if there was a lock, and it is lost.
func (m *Migrate) lost() error {
	if lock := m.held.Load(); lock != nil {
		return lock.Err()
	}
	return nil
}

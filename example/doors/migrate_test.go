package doors

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	pgxmigrate "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	sqlitemigrate "github.com/golang-migrate/migrate/v4/database/sqlite"
	migratetest "github.com/golang-migrate/migrate/v4/database/testing"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/wllocktest"
)

// onSQLite is the door before a database of SQLite.
func onSQLite(t *testing.T, l *wllock.Locker, db *sql.DB) *Migrate {
	t.Helper()
	driver, err := sqlitemigrate.WithInstance(db, &sqlitemigrate.Config{})
	require.NoError(t, err)
	return &Migrate{Driver: driver, Locker: l, Name: "migrations", Key: "data.db"}
}

// three is a source of three migrations.
func three(t *testing.T, statement string, driver database.Driver) *migrate.Migrate {
	t.Helper()
	files := fstest.MapFS{}
	for v := 1; v <= 3; v++ {
		files[fmt.Sprintf("%d_step.up.sql", v)] = &fstest.MapFile{Data: fmt.Appendf(nil, statement, v)}
	}
	source, err := iofs.New(files, ".")
	require.NoError(t, err)
	m, err := migrate.NewWithInstance("iofs", source, "door", driver)
	require.NoError(t, err)
	return m
}

func TestMigrateIsADriver(t *testing.T) {
	t.Parallel()
	_, db := newSQLite(t)
	migratetest.Test(t, onSQLite(t, wllocktest.New(t), db), []byte("CREATE TABLE t (n int)"))
}

// TestMigrateOpens: migrate.New opens drivers by their names, and what they open has the lock.
func TestMigrateOpens(t *testing.T) {
	t.Parallel()
	l := wllocktest.New(t)
	file, _ := newSQLite(t)
	door := &Migrate{Driver: &sqlitemigrate.Sqlite{}, Locker: l, Name: "migrations", Key: "data.db"}
	opened, err := door.Open("sqlite://" + file)
	require.NoError(t, err)
	require.NoError(t, opened.Lock())
	require.Len(t, l.Locks(1), 1)
	require.NoError(t, opened.Close())
	require.Empty(t, l.Locks(1), "Close releases it")
}

func TestMigrateAppliesEachMigrationOnce(t *testing.T) {
	t.Parallel()
	_, faults := wllocktest.NewWithFaults(t)
	file, db := newSQLite(t)
	var all sync.WaitGroup
	for range 5 {
		m := three(t, slowly, onSQLite(t, faults.Process(), openSQLite(t, file)))
		all.Go(func() {
			if err := m.Up(); !errors.Is(err, migrate.ErrNoChange) && err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Equal(t, []int{1, 2, 3}, applied(t, db))
}

// TestMigrateGoesAwayWithoutALock: a Lock that fails in time leaves none behind.
func TestMigrateGoesAwayWithoutALock(t *testing.T) {
	t.Parallel()
	l, faults := wllocktest.NewWithFaults(t)
	release := wllocktest.Hold(t, faults.Process(), "migrations", "data.db")
	_, db := newSQLite(t)
	door := onSQLite(t, l, db)
	door.Wait = 50 * time.Millisecond
	m := three(t, slowly, door)
	m.LockTimeout = 5 * time.Second
	err := m.Up()
	require.ErrorIs(t, err, database.ErrLocked)
	require.ErrorIs(t, err, wllock.ErrWaitTimeout)
	release()
	require.NoError(t, m.Up())
}

// TestMigrateClosesALockThatCameTooLate: Wait is longer than the LockTimeout.
func TestMigrateClosesALockThatCameTooLate(t *testing.T) {
	t.Parallel()
	l, faults := wllocktest.NewWithFaults(t)
	release := wllocktest.Hold(t, faults.Process(), "migrations", "data.db")
	_, db := newSQLite(t)
	m := three(t, slowly, onSQLite(t, l, db))
	m.LockTimeout = 20 * time.Millisecond
	require.ErrorIs(t, m.Up(), migrate.ErrLockTimeout)
	release()
	require.Eventually(t, func() bool { return l.Stats().Total.Held == 1 }, 10*time.Second, time.Millisecond)
	source, driver := m.Close()
	require.NoError(t, errors.Join(source, driver))
	require.Zero(t, l.Stats().Total.Held)
}

func TestMigrateDropsNothingAfterTheLockWasLost(t *testing.T) {
	t.Parallel()
	l, faults := wllocktest.NewWithFaults(t)
	_, db := newSQLite(t)
	door := onSQLite(t, l, db)
	require.NoError(t, door.Lock())
	faults.Lose("migrations", "data.db")
	<-door.held.Load().Context().Done()
	require.ErrorIs(t, door.Drop(), wllock.ErrLeaseLost)
	require.Empty(t, applied(t, db), "the table is there")
	require.NoError(t, door.Close())
}

// losesIn loses the lock in one of its migrations, or before the first one.
type losesIn struct {
	database.Driver
	migration int
	lose      func()
	runs      int
}

func (d *losesIn) Version() (version int, dirty bool, err error) {
	if d.migration == 0 && d.runs == 0 {
		d.runs++
		d.lose()
	}
	return d.Driver.Version()
}

func (d *losesIn) Run(migration io.Reader) error {
	if d.runs++; d.runs == d.migration {
		d.lose()
	}
	return d.Driver.Run(migration)
}

func TestMigrateBeginsNoMigrationAfterTheLockWasLost(t *testing.T) {
	t.Parallel()
	for n := range 4 {
		t.Run(fmt.Sprint("migration ", n), func(t *testing.T) {
			t.Parallel()
			l, faults := wllocktest.NewWithFaults(t)
			_, db := newSQLite(t)
			door := onSQLite(t, l, db)
			door.Driver = &losesIn{Driver: door.Driver, migration: n, lose: func() {
				faults.Lose("migrations", "data.db")
				<-door.held.Load().Context().Done()
			}}
			m := three(t, slowly, door)
			require.ErrorIs(t, m.Up(), wllock.ErrLeaseLost)
			done := []int{1, 2, 3}
			require.Equal(t, done[:n], append([]int{}, applied(t, db)...))
			if n > 0 {
				version, dirty, err := m.Version()
				require.NoError(t, err)
				require.EqualValues(t, n, version)
				require.False(t, dirty)
			}
			if err := m.Up(); n < 3 {
				require.NoError(t, err, "it goes on")
			}
			require.Equal(t, done, applied(t, db))
		})
	}
}

// TestMigrateWaitsOutsideOfTheDatabase: those waiting for PostgreSQL's advisory lock keep CREATE INDEX CONCURRENTLY from ending, and it keeps the
// lock from them.
func TestMigrateWaitsOutsideOfTheDatabase(t *testing.T) {
	t.Parallel()
	_, faults := wllocktest.NewWithFaults(t)
	server := dbtest.SharedPostgres(t)
	server.Exec("CREATE TABLE stock (id int)")
	var all sync.WaitGroup
	for range 3 {
		db, err := sql.Open("pgx/v5", server.URL())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		driver, err := pgxmigrate.WithInstance(db, &pgxmigrate.Config{})
		require.NoError(t, err)
		m := three(t, "CREATE INDEX CONCURRENTLY stock_%d ON stock (id)", &Migrate{Driver: driver, Locker: faults.Process(), Name: "migrations", Key: "shop"})
		all.Go(func() {
			if err := m.Up(); !errors.Is(err, migrate.ErrNoChange) && err != nil {
				t.Error(err)
			}
			source, driver := m.Close()
			if err := errors.Join(source, driver); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Equal(t, "3", server.Exec("SELECT count(*) FROM pg_indexes WHERE tablename = 'stock'"))
}

package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/distributed/sqllock/sqlite"
	"github.com/wllock/wllock/internal/testlocker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, url string, opts ...sqllock.Option) *sqllock.Backend {
	t.Helper()
	b, err := sqlite.Open(url, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	return b
}

func newFile(t *testing.T) string { return filepath.Join(t.TempDir(), "locks.db") }

// migrated is a file with tables, which nobody has open.
func migrated(t *testing.T) string {
	t.Helper()
	file := newFile(t)
	require.NoError(t, sqlite.Migrate(t.Context(), urlOf(file)))
	return file
}

func urlOf(file string) string { return "sqlite://" + file }

func asker(t *testing.T, b *sqllock.Backend) testlocker.Asker {
	return testlocker.Asker{T: t, B: b, Key: "k", TTL: time.Minute}
}

// There is nothing to migrate: several processes at a time open a file that is not there, with tables of two names.
func TestFileMakesItsOwnTables(t *testing.T) {
	t.Parallel()
	url := urlOf(newFile(t))
	var all sync.WaitGroup
	for i := range 8 {
		var opts []sqllock.Option
		if i%2 == 1 {
			opts = append(opts, sqllock.WithTable("other"))
		}
		b := open(t, url, opts...)
		all.Go(func() {
			assert.NoError(t, b.Ping(t.Context()))
			l, p, err := b.Enter(t.Context(), distributed.Request{Key: "k", Instance: fmt.Sprint(i), TTL: time.Minute})
			if p != nil {
				l = <-p.Granted()
			}
			if assert.NotNil(t, l, "%v", err) {
				assert.NoError(t, l.Release(t.Context()))
			}
		})
	}
	all.Wait()
}

// A deploy that empties the folder, or puts back a copy, or points a link elsewhere, takes the lock away from its holder, whose connections
// are to a file that no other process finds.
func TestFileTakesItsLocksAlong(t *testing.T) {
	t.Parallel()
	point := func(t *testing.T, link string) {
		require.NoError(t, os.Symlink(migrated(t), link+".new"))
		require.NoError(t, os.Rename(link+".new", link))
	}
	for name, take := range map[string]func(t *testing.T, file string){
		"removed": func(t *testing.T, file string) { remove(t, file, "", "-wal", "-shm") },
		"replaced": func(t *testing.T, file string) {
			other := migrated(t) // before: a renewal in between would make a log that is not the other file's
			remove(t, file, "-wal", "-shm")
			require.NoError(t, os.Rename(other, file))
		},
		"a link": point,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := newFile(t)
			if name == "a link" {
				point(t, file)
			}
			old := asker(t, open(t, urlOf(file))).Lease("old")
			take(t, file)
			next := asker(t, open(t, urlOf(file))).Lease("next")
			testlocker.Lost(t, old)
			testlocker.Release(t, next)
		})
	}
}

func remove(t *testing.T, file string, suffixes ...string) {
	t.Helper()
	for _, suffix := range suffixes {
		require.NoError(t, os.Remove(file+suffix))
	}
}

// Without its log the file is the same, but what processes know of each other was in the log's index: whoever opens the file now does not
// meet those that had it open before.
func TestConnectionEndsWithTheLog(t *testing.T) {
	t.Parallel()
	file, link := newFile(t), newFile(t) // the log is beside the file, not beside a link to it
	require.NoError(t, os.Symlink(file, link))
	for _, path := range []string{file, link} {
		db, err := sqlite.OpenDB(urlOf(path))
		require.NoError(t, err)
		db.SetMaxOpenConns(1)
		_, err = db.Exec("CREATE TABLE IF NOT EXISTS in_the_log (n INTEGER)")
		require.NoError(t, err)
		remove(t, file, "-wal", "-shm")
		var n int
		require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM sqlite_master").Scan(&n))
		require.FileExists(t, file+"-shm", "a new connection has made it")
		require.NoError(t, db.Close())
	}
}

// A relative path is that of the process's directory when it was opened, whenever a connection is made.
func TestPathStaysWhereItWas(t *testing.T) {
	file := newFile(t)
	t.Chdir(filepath.Dir(file))
	b := open(t, "sqlite:locks.db")
	t.Chdir(t.TempDir())
	l := asker(t, b).Lease("relative")
	require.FileExists(t, file)
	asker(t, open(t, urlOf(file))).Place("absolute")
	testlocker.Release(t, l)
}

// OpenDB is for other things as well, and creates nothing.
func TestOpenDBCreatesNoTables(t *testing.T) {
	t.Parallel()
	db, err := sqlite.OpenDB(urlOf(newFile(t)))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	var n int
	require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM sqlite_master").Scan(&n))
	require.Zero(t, n)
}

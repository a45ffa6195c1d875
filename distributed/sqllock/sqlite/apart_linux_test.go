package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testlocker"
)

// onThread runs f on a thread that was prepared for it. It needs root.
func onThread(t *testing.T, prepare func() error, f func()) (err error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user, and mount")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // what is prepared is the thread's, which ends with the goroutine
		if err = prepare(); err == nil {
			f()
		}
	}()
	<-done
	return err
}

// asNobody runs f with the rights of another user to files.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	const nobody = 65534
	assert.NoError(t, onThread(t, func() error { return errors.Join(syscall.Setfsgid(nobody), syscall.Setfsuid(nobody)) }, f))
}

// fileIn is a database in a directory with these rights.
func fileIn(t *testing.T, rights fs.FileMode) string {
	t.Helper()
	above := t.TempDir()
	for _, dir := range []string{filepath.Dir(above), above} { // which are the test's own
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	dir := filepath.Join(above, "locks")
	require.NoError(t, os.Mkdir(dir, rights))
	return filepath.Join(dir, "db")
}

// TestAnotherUserHasNoRightToALock: a directory that only its user may enter keeps systems apart.
func TestAnotherUserHasNoRightToALock(t *testing.T) {
	t.Parallel()
	file := fileIn(t, 0o700)
	v := testlocker.Victims{One: open(t, urlOf(file)), Other: open(t, urlOf(file)), Key: "bank:acct:9", Load: "bank:load"}
	v.Undisturbed(t, func(distributed.Lease, distributed.Place) {
		asNobody(t, func() {
			for _, name := range []string{file, file + "-wal", file + "-shm", file + "-journal"} {
				for what, err := range map[string]error{
					"read": second(os.Open(name)), "write": second(os.OpenFile(name, os.O_WRONLY, 0)), "create": second(os.Create(name)), "see": second(os.Stat(name)),
					"remove": os.Remove(name), "replace": os.Rename(os.Args[0], name), "move": os.Rename(name, file+".old"), "link": os.Link(name, os.TempDir()+"/stolen"),
					"rights": os.Chmod(name, 0o777), "cut": os.Truncate(name, 0), "directory": os.Rename(filepath.Dir(file), filepath.Dir(file)+".old"),
				} {
					if !errors.Is(err, fs.ErrPermission) {
						t.Errorf("%s %s: %v", what, name, err)
					}
				}
			}
		})
	})
}

// TestAReaderOfTheFileCanKeepItLocked: why others may not enter.
func TestAReaderOfTheFileCanKeepItLocked(t *testing.T) {
	t.Parallel()
	file := fileIn(t, 0o755)
	b := open(t, urlOf(file))
	enter := func() error {
		l, _, err := b.Enter(t.Context(), distributed.Request{Key: "bank:acct:9", Instance: "a", TTL: 400 * time.Millisecond, NoWait: true})
		if err == nil {
			err = l.Release(t.Context())
		}
		return err
	}
	require.Eventually(t, func() bool { return enter() == nil }, 10*time.Second, time.Millisecond) // a busy machine makes the tables later
	var locked *os.File
	var err error
	asNobody(t, func() {
		if locked, err = os.Open(file + "-shm"); err == nil {
			err = lock(locked, syscall.F_RDLCK)
		}
	})
	require.NoError(t, err)
	refused := enter()
	require.NoError(t, lock(locked, syscall.F_UNLCK))
	require.NoError(t, b.Close())
	require.NoError(t, locked.Close()) // which ends all locks of the process on the file, also those of SQLite
	require.ErrorIs(t, refused, distributed.ErrUnavailable)
}

// lock locks a byte that writers lock, for this open file and not for the process.
func lock(f *os.File, kind int16) error {
	const ofdSetLock = 37 // F_OFD_SETLK
	return syscall.FcntlFlock(f.Fd(), ofdSetLock, &syscall.Flock_t{Type: kind, Start: 120, Len: 1})
}

func second(_ any, err error) error { return err }

package sqlite_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock/sqlite"
	"github.com/wllock/wllock/internal/testlocker"
)

// used is a file in a directory of its own in which locks were kept, and which nobody has open.
func used(t *testing.T) string {
	t.Helper()
	file := fileIn(t, 0o755)
	b, err := sqlite.Open(urlOf(file))
	require.NoError(t, err)
	testlocker.Release(t, asker(t, b).Lease("before"))
	require.NoError(t, b.Close())
	return file
}

// refused is what the check, and a Backend, say of a file.
func refused(t *testing.T, path, want string) {
	t.Helper()
	assert.ErrorContains(t, sqlite.Check(urlOf(path)), want)
	err := open(t, urlOf(path)).Ping(t.Context())
	assert.ErrorIs(t, err, distributed.ErrRefused)
	assert.ErrorContains(t, err, want)
	assert.ErrorContains(t, err, path)
}

// unshared runs f with mounts of its own.
func unshared(t *testing.T, f func()) {
	t.Helper()
	err := onThread(t, func() error {
		return errors.Join(syscall.Unshare(syscall.CLONE_NEWNS), syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""))
	}, f)
	if errors.Is(err, syscall.EINVAL) {
		t.Skip("the root of a chroot is no mount: what is mounted here could be seen outside")
	}
	assert.NoError(t, err)
}

// TestAFileMountedWithoutItsDirectoryIsRefused: each of two containers would have a log of its own.
func TestAFileMountedWithoutItsDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	file, inside := used(t), t.TempDir()
	mounted := filepath.Join(inside, "locks.db")
	require.NoError(t, os.WriteFile(mounted, nil, 0o600))
	unshared(t, func() {
		assert.NoError(t, syscall.Mount(file, mounted, "", syscall.MS_BIND, ""))
		refused(t, mounted, "is mounted without its directory")
		db, err := sqlite.OpenDB(urlOf(mounted) + "?mode=ro")
		if assert.NoError(t, err) {
			defer func() { _ = db.Close() }()
			assert.ErrorContains(t, db.Ping(), "is mounted without its directory") // what it would show is not what services see
		}
		assert.NoError(t, syscall.Mount(filepath.Dir(file), inside, "", syscall.MS_BIND, ""))
		assert.NoError(t, sqlite.Check(urlOf(filepath.Join(inside, filepath.Base(file)))), "the whole directory")
	})
	require.NoFileExists(t, mounted+"-shm")
}

// TestFilesThatOthersReachByAnotherPath: links to the file, and what is no file.
func TestFilesThatOthersReachByAnotherPath(t *testing.T) {
	t.Parallel()
	file := used(t)
	dir := filepath.Dir(file)
	name := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.Link(file, name("hard")))
	require.NoError(t, syscall.Mkfifo(name("fifo"), 0o600))
	require.NoError(t, os.Symlink(name("nowhere/db"), name("dangling")))
	refused(t, name("hard"), "it has 2 names")
	refused(t, file, "it has 2 names")
	refused(t, name("fifo"), "it is no regular file")
	refused(t, dir, "it is no regular file")
	refused(t, name("dangling"), "nowhere")
	refused(t, name("missing/db"), "missing")
	require.NoError(t, os.Remove(name("hard")))
	require.NoError(t, sqlite.Check(urlOf(file)))

	other := t.TempDir()
	require.NoError(t, os.Symlink(file, filepath.Join(other, "link")))
	require.NoError(t, os.Symlink(filepath.Join(other, "new"), filepath.Join(other, "link to a file that is not there")))
	require.NoError(t, open(t, urlOf(filepath.Join(other, "link to a file that is not there"))).Ping(t.Context()))
	require.FileExists(t, filepath.Join(other, "new"))
	held := asker(t, open(t, urlOf(file))).Lease("by the file")
	asker(t, open(t, urlOf(filepath.Join(other, "link")))).Place("by the link")
	testlocker.Release(t, held)
}

// TestAFileOfAnotherUserIsRefusedByName: the error names the file, its owner, and who may not write.
func TestAFileOfAnotherUserIsRefusedByName(t *testing.T) {
	t.Parallel()
	file := used(t)
	asNobody(t, func() {
		refused(t, file, file+" belongs to user root (0) (-rw-r--r--), and user ")
		refused(t, filepath.Join(filepath.Dir(file), "new"), "may not create files in it")
	})
	require.NoError(t, os.Chmod(file, 0o666))
	asNobody(t, func() { refused(t, file, "may not create files in it") })
	require.NoError(t, os.Chmod(filepath.Dir(file), 0o777))
	require.NoError(t, os.WriteFile(file+"-wal", nil, 0o644))
	asNobody(t, func() { refused(t, file, file+"-wal belongs to user root (0) (-rw-r--r--), and user ") })
	require.NoError(t, os.Remove(file+"-wal"))
	asNobody(t, func() { assert.NoError(t, open(t, urlOf(file)).Ping(t.Context())) })
}

// TestFilesThatTheOwnerCannotWriteAreRefused: a process of another user has created them, and the services would be locked out.
func TestFilesThatTheOwnerCannotWriteAreRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	file := used(t)
	const owner, nobody = 1000, 65534
	require.NoError(t, errors.Join(os.Chown(file, owner, owner), os.Chmod(file, 0o666), os.Chmod(filepath.Dir(file), 0o777)))
	leave := func() { // SQLite gives an empty one the mode of the file
		require.NoError(t, errors.Join(os.WriteFile(file+"-wal", []byte{0}, 0o644), os.Chown(file+"-wal", nobody, nobody)))
	}
	leave()
	asNobody(t, func() {
		err := open(t, urlOf(file)).Ping(t.Context())
		assert.ErrorIs(t, err, distributed.ErrRefused)
		assert.ErrorContains(t, err, file+"-wal belongs to user ")
		assert.Regexp(t, `user (\S+ \()?1000\)?, whose file it is, may not write to it`, err.Error())
	})
	leave()
	require.NoError(t, os.WriteFile(file+"-shm", nil, 0o666))
	_, err := open(t, urlOf(file)+"?mode=ro").Inspect(t.Context(), "k") // SQLite would give it to the owner, when root opens it
	require.ErrorContains(t, err, file+"-wal belongs to user ")
}

// snapshot is all that a change of a folder would show in.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := os.Lstat(path)
		require.NoError(t, err)
		s := *info.Sys().(*syscall.Stat_t)
		s.Atim, s.Ctim = syscall.Timespec{}, syscall.Timespec{} // root gives a log to the owner of the file, who has it already
		all[path] = fmt.Sprintf("%+v", s)
		return nil
	}))
	return all
}

// TestReadingChangesNothing, whoever reads, and whether somebody has the file open.
func TestReadingChangesNothing(t *testing.T) {
	t.Parallel()
	file := used(t)
	dir := filepath.Dir(file)
	read := func(want bool) {
		b, err := sqlite.Open(urlOf(file) + "?mode=ro")
		if !assert.NoError(t, err) {
			return
		}
		defer func() { assert.NoError(t, b.Close()) }()
		found, err := b.Inspect(t.Context(), "k")
		assert.NoError(t, err)
		assert.Equal(t, want, found.Held())
		all, _, err := b.List(t.Context(), "", "", 10)
		assert.NoError(t, err)
		assert.Equal(t, want, len(all) == 1)
	}
	everybody := func(want bool) {
		before := snapshot(t, dir)
		read(want)
		asNobody(t, func() { read(want) })
		assert.Equal(t, before, snapshot(t, dir))
	}
	everybody(false)
	require.Len(t, snapshot(t, dir), 2)
	b, err := sqlite.Open(urlOf(file))
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	lease := asker(t, b).Lease("holder")
	asNobody(t, func() { read(true) })
	require.Len(t, snapshot(t, dir), 4, "the file, its log and its index")
	crashed := fileIn(t, 0o755)
	for _, suffix := range []string{"", "-wal", "-shm"} { // as a process leaves them that was killed
		data, err := os.ReadFile(file + suffix)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(crashed+suffix, data, 0o644))
	}
	testlocker.Release(t, lease)
	file, dir = crashed, filepath.Dir(crashed)
	asNobody(t, func() { read(true) })
	before := snapshot(t, dir)
	everybody(true)
	require.Equal(t, before, snapshot(t, dir))

	missing := filepath.Join(dir, "missing")
	_, err = open(t, urlOf(missing)+"?mode=ro").Inspect(t.Context(), "k")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "no process has kept locks in it yet")
	require.NoFileExists(t, missing)
}

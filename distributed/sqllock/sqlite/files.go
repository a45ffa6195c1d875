package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// files are those in which processes meet: the file itself, and the index of its log, which has the locks. They are never opened here: to
// close a file ends all locks of the process on it.
type files struct{ main, index fs.FileInfo } // index: nil without a log

// filesOf returns those that have the path now. SQLite keeps the log beside the file that a symbolic link leads to.
func filesOf(path string) (f files, err error) {
	if f.main, err = os.Lstat(path); err == nil && f.main.Mode()&fs.ModeSymlink != 0 {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			f.main, err = os.Lstat(path)
		}
	}
	if err != nil {
		return f, err
	}
	if f.index, err = os.Lstat(path + "-shm"); errors.Is(err, fs.ErrNotExist) {
		f.index, err = nil, nil
	}
	return f, err
}

func (f files) same(as files) bool {
	return os.SameFile(f.main, as.main) && (f.index == nil) == (as.index == nil) && (f.index == nil || os.SameFile(f.index, as.index))
}

// sidecars are the files that SQLite keeps beside its own: the log, the log's index, and the log of a file without WAL.
var sidecars = []string{"-wal", "-shm", "-journal"}

// fileError says why a file is refused. It has the code of SQLite for a file that cannot be opened, so that nobody tries it again at once.
type fileError struct{ error }

func (e fileError) Unwrap() error { return e.error }

// Code is SQLITE_CANTOPEN.
func (fileError) Code() int { return 14 }

func refuse(format string, args ...any) error { return fileError{fmt.Errorf(format, args...)} }

// examine says why those who lock in the file of this path would not all meet, or why this process may not read it, or write to it
// (rule D14). A file that is not there yet has no faults of its own. It opens nothing: a FIFO would not be opened in a lifetime.
func examine(path string, writes bool) error {
	file, err := filepath.EvalSymlinks(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return examineMissing(path, writes)
	case err != nil:
		return refuse("%w", err)
	}
	info, err := os.Lstat(file)
	if err != nil {
		return refuse("%w", err)
	}
	if err := where(file, info); err != nil {
		return err
	}
	if err := may(file, info, writes); err != nil {
		return err
	}
	var there []string
	for _, suffix := range sidecars {
		info, err := os.Lstat(file + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = may(file+suffix, info, writes)
		}
		if err != nil {
			return refuse("%w", err)
		}
		there = append(there, suffix)
	}
	switch {
	case writes:
		return mayCreate(filepath.Dir(file))
	case len(there) > 0 && !slices.Contains(there, "-shm"): // perhaps a process is just opening it
		return fmt.Errorf("%s%s is there without -shm: only a process that may write can read the file", file, there[0])
	}
	return nil
}

// examineMissing is examine for a file that SQLite will create, where a link that leads nowhere points.
func examineMissing(path string, writes bool) error {
	if !writes {
		return refuse("no process has kept locks in it yet, or this is not its path: %w", fs.ErrNotExist)
	}
	if to, err := os.Readlink(path); err == nil {
		if path = to; !filepath.IsAbs(to) {
			path = filepath.Join(filepath.Dir(path), to)
		}
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return refuse("%w", err)
	}
	return mayCreate(dir)
}

// where refuses a file whose log others would look for in another place.
func where(file string, info fs.FileInfo) error {
	const apart = "so processes that reach it by another path have another log, and do not meet"
	switch {
	case !info.Mode().IsRegular():
		return refuse("it is no regular file (%v)", info.Mode())
	case links(info) > 1:
		return refuse("it has %d names (hard links), and SQLite keeps a log beside each, %s. Leave one name", links(info), apart)
	case mountedAlone(file):
		return refuse("it is mounted without its directory, in which SQLite keeps the log, %s. Mount the directory", apart)
	case networkFS(file) != "":
		return refuse("it is on a network file system (%s), where processes of two machines do not meet: take a disk of this machine", networkFS(file))
	}
	return nil
}

// may refuses a file that this process has no right to use.
func may(file string, info fs.FileInfo, writes bool) error {
	switch {
	case !info.Mode().IsRegular():
		return refuse("%s is no regular file (%v)", file, info.Mode())
	case !allowed(file, false):
		return refuse("%s belongs to %s (%v), and %s may not read it", file, ownerOf(info), info.Mode(), self())
	case writes && !allowed(file, true):
		return refuse("%s belongs to %s (%v), and %s may not write to it: let all processes that lock run as one user", file, ownerOf(info),
			info.Mode(), self())
	}
	return nil
}

// mayCreate refuses a directory in which SQLite could not keep its log.
func mayCreate(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return refuse("%w", err)
	case !allowed(dir, true):
		return refuse("the directory %s belongs to %s (%v), and %s may not create files in it, where SQLite keeps its log", dir, ownerOf(info),
			info.Mode(), self())
	}
	return nil
}

// shared refuses sidecars that the owner of the file cannot write: they were created by another user, perhaps by this process.
func shared(path string) error {
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	main, err := os.Lstat(file)
	if err != nil {
		return err
	}
	for _, suffix := range sidecars {
		if beside, err := os.Lstat(file + suffix); err == nil && !ownerMayWrite(main, beside) {
			return refuse("%s belongs to %s (%v), and %s, whose file it is, may not write to it: let all processes that lock run as one user",
				file+suffix, ownerOf(beside), beside.Mode(), ownerOf(main))
		}
	}
	return nil
}

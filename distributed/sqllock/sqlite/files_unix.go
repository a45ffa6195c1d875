//go:build unix

package sqlite

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

func statOf(info fs.FileInfo) *syscall.Stat_t { return info.Sys().(*syscall.Stat_t) }

// links is how many names the file has.
func links(info fs.FileInfo) uint64 { return uint64(statOf(info).Nlink) }

// allowed reports whether this process may read, or write, by its effective user: the system decides, also about read-only mounts. Nothing
// forbids what is not there any more: another process may just have removed its log.
func allowed(path string, write bool) bool {
	mode := uint32(unix.R_OK)
	if write {
		mode = unix.W_OK
	}
	err := unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS)
	return err == nil || errors.Is(err, unix.ENOENT)
}

func ownerOf(info fs.FileInfo) string { return userName(int(statOf(info).Uid)) }

// self is the user of this process.
func self() string { return userName(os.Geteuid()) }

// userName has the number: in a container the same one may have another name.
func userName(id int) string {
	number := strconv.Itoa(id)
	u, err := user.LookupId(number)
	if err != nil {
		return "user " + number
	}
	return "user " + cmp.Or(u.Username, "?") + " (" + number + ")"
}

// ownerMayWrite reports whether the owner of a file may write to another one.
func ownerMayWrite(main, beside fs.FileInfo) bool {
	of, to := statOf(main), statOf(beside)
	return of.Uid == to.Uid || of.Uid == 0 || beside.Mode()&0o002 != 0 || of.Gid == to.Gid && beside.Mode()&0o020 != 0
}

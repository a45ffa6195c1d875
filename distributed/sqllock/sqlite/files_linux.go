package sqlite

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mountedAlone reports whether the file is a mount of its own: then what is beside it is not beside it elsewhere. Linux tells since 5.8,
// unless a sandbox forbids the question. Devices do not tell: on an overlay a file and its directory may have two.
func mountedAlone(file string) bool {
	own, known := mountOf(file)
	dir, alsoKnown := mountOf(filepath.Dir(file))
	return known && alsoKnown && own != dir
}

// mountOf returns the number of the mount that a path is in.
func mountOf(path string) (id uint64, known bool) {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &s)
	return s.Mnt_id, err == nil && s.Mask&unix.STATX_MNT_ID != 0
}

// remote are the file systems of other machines, whose index of the log is not memory that two machines share.
var remote = map[int64]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.CIFS_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB",
	unix.AFS_SUPER_MAGIC: "AFS", unix.AFS_FS_MAGIC: "AFS", unix.CODA_SUPER_MAGIC: "Coda", unix.CEPH_SUPER_MAGIC: "Ceph",
}

// networkFS names the network file system of a file; "": it is on none that is known.
func networkFS(file string) string {
	var s unix.Statfs_t
	if unix.Statfs(file, &s) != nil {
		return ""
	}
	return remote[int64(uint32(s.Type))]
}

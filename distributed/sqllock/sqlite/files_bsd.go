//go:build unix && !linux

package sqlite

import (
	"os"
	"path/filepath"
)

// mountedAlone reports whether the file is on another device than its directory: then what is beside it is not beside it elsewhere.
func mountedAlone(file string) bool {
	own, err := os.Stat(file)
	if err != nil {
		return false
	}
	dir, err := os.Stat(filepath.Dir(file))
	return err == nil && statOf(own).Dev != statOf(dir).Dev
}

// networkFS is known on Linux only.
func networkFS(string) string { return "" }

package command

import (
	"bytes"
	"os"
	"strings"
)

// depth is more runs than lie within each other: the walk ends, also where the numbers of processes have come again.
const depth = 64

// within looks for a lock among those that this process runs under. Its holder is the process pid; ended: that one is not there any more.
// An outer run is found by the environment that its command got, and that one's outer run by its own.
func within(environ []string, full string) (pid string, ended, found bool) {
	for range depth {
		key := ""
		key, pid = value(environ, keyVariable), value(environ, pidVariable)
		if key == "" {
			return "", false, false
		}
		above, err := environmentOf(pid)
		if key == full {
			return pid, pid != "" && err != nil && os.IsNotExist(err), true
		}
		if err != nil {
			return "", false, false
		}
		environ = above
	}
	return "", false, false
}

// environmentOf is what a process was started with, where the system has that in a file.
func environmentOf(pid string) ([]string, error) {
	text, err := os.ReadFile("/proc/" + pid + "/environ")
	if err != nil {
		return nil, err
	}
	var all []string
	for entry := range bytes.SplitSeq(text, []byte{0}) {
		all = append(all, string(entry))
	}
	return all, nil
}

// value is that of the last entry of a name, as getenv has it where there are two.
func value(environ []string, name string) (found string) {
	for _, entry := range environ {
		if rest, ok := strings.CutPrefix(entry, name+"="); ok {
			found = rest
		}
	}
	return found
}

// notWithin refuses a lock that the caller holds already: it would wait for its own end.
func (a *app) notWithin(full string) error {
	switch pid, ended, found := within(a.environ, full); {
	case !found:
	case ended:
		a.say("%s is in %s, but its holder, process %s, is not here: if it runs elsewhere, this command waits for itself", a.shown(full), keyVariable, pid)
	default:
		return usageError("this command runs under %s already, and would wait for itself: call it without the lock, "+
			"or with env -u %s if that lock is on another backend", a.shown(full), keyVariable)
	}
	return nil
}

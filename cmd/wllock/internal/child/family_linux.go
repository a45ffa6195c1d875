package child

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adopt has orphans of the command become children of this process, and not of process 1: so none is lost sight of, whatever its process
// group or session, and wait tells when the last one has ended.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// family are the command and what descends from it, without those that have ended and are not waited for yet. A process that is forked
// meanwhile may be missing: who ends them all asks again.
func (c *Child) family() []Process {
	self := os.Getpid()
	if link, err := os.Readlink("/proc/self"); err != nil || link != strconv.Itoa(self) {
		return c.alone() // /proc is missing, or that of another namespace, where our numbers are others' processes
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return c.alone()
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	children := map[int][]Process{}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, parent, ok := stat(pid); ok {
				children[parent] = append(children[parent], p)
			}
		}
	}
	found := children[self]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].Pid]...)
	}
	return found
}

// stat reads a line like "4711 (name) S parent group ...". The name may hold anything.
func stat(pid int) (p Process, parent int, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	from, to := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if err != nil || from < 0 || to < from {
		return p, 0, false
	}
	fields := bytes.Fields(text[to+1:])
	if len(fields) < 3 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return p, 0, false
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	group, _ := strconv.Atoi(string(fields[2]))
	return Process{Pid: pid, Name: string(text[from+1 : to]), group: group}, parent, true
}

// over waits until nothing that descends from the command is left, but not for longer than d. Ended ones that nobody has waited for do
// not count.
func (c *Child) over(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.gone:
		return true
	case <-t.C:
		return false
	}
}

// dieWithParent has the command killed when this process is: nobody would end it when the lease has expired.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

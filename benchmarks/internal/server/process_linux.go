package server

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the server end with this process, also when that is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// cpuClock is the kernel's clock of the CPU time of a process, all threads together, in nanoseconds: see
// clock_getcpuclockid(3). 2 selects the time the scheduler counts.
func cpuClock(pid int) int32 { return ^int32(pid)<<3 | 2 }

// cpuOf returns the CPU time a process has used.
func cpuOf(pid int) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(cpuClock(pid), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// OwnCPU returns the CPU time this process has used.
func OwnCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// clockTick is the unit of the times in /proc, on every Linux since 2.6.
const clockTick = time.Second / 100

// cpuOfTree returns the CPU time that a process and its children have used, those that have ended included.
func cpuOfTree(pid int) time.Duration {
	sum := cpuOf(pid)
	own := statOf(pid)
	for _, field := range []int{cutime, cstime} {
		if n, err := strconv.Atoi(own[field]); err == nil {
			sum += time.Duration(n) * clockTick
		}
	}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		if child, err := strconv.Atoi(filepath.Base(dir)); err == nil && statOf(child)[ppid] == strconv.Itoa(pid) {
			sum += cpuOf(child)
		}
	}
	return sum
}

// Fields of /proc/PID/stat after the name, see proc(5): ppid, and the time of children that have ended.
const (
	ppid   = 1
	cutime = 13
	cstime = 14
	fields = 15
)

// statOf returns the fields after the name; they are empty if there is no such process.
func statOf(pid int) []string {
	text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	_, rest, _ := bytes.Cut(text, []byte(") "))
	all := make([]string, fields)
	for i, f := range bytes.Fields(rest) {
		if i < fields {
			all[i] = string(f)
		}
	}
	return all
}

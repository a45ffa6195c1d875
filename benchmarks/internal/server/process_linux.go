package server

import (
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

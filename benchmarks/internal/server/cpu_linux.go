package server

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clockTick is the unit of the times in /proc, on every Linux since 2.6.
const clockTick = time.Second / 100

// cpuOf returns the CPU time that a process and its children have used, those that have ended included: PostgreSQL has a process for
// each connection.
func cpuOf(pid int) time.Duration {
	sum := cpuOfOne(pid)
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := bytes.Cut(stat, []byte(") ")) // after the name, which may hold anything
	const ended, endedSystem = 13, 14           // see proc(5): cutime and cstime
	for i, field := range strings.Fields(string(rest)) {
		if n, err := strconv.Atoi(field); err == nil && (i == ended || i == endedSystem) {
			sum += time.Duration(n) * clockTick
		}
	}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	for child := range strings.FieldsSeq(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			sum += cpuOfOne(n)
		}
	}
	return sum
}

// cpuOfOne reads the kernel's clock of the CPU time of a process, all threads together, in nanoseconds: see clock_getcpuclockid(3). 2
// selects the time the scheduler counts.
func cpuOfOne(pid int) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(^int32(pid)<<3|2, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

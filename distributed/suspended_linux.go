package distributed

import (
	"syscall"
	"time"
	"unsafe"
)

// The clocks of clock_gettime(2). CLOCK_BOOTTIME is the monotonic clock plus the time for which the machine was suspended.
const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// asleepBefore is for how long the machine was suspended between its boot and the start of this process; at least, since a
// pause between the two readings makes it seem shorter.
var asleepBefore = func() time.Duration { boot := clock(clockBoottime); return boot - clock(clockMonotonic) }()

// suspended reports whether the machine was suspended since the process began. A pause between the readings makes it
// seem so.
func suspended() bool {
	monotonic := clock(clockMonotonic)
	return clock(clockBoottime)-monotonic-asleepBefore > clockStep
}

func clock(id uintptr) time.Duration {
	var at syscall.Timespec
	if _, _, err := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&at)), 0); err != 0 {
		panic("distributed: clock_gettime: " + err.Error()) // every Linux that Go runs on has both clocks
	}
	return time.Duration(at.Nano())
}

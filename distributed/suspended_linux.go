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

// readings is how often the two clocks are read: a pause between them is seldom there each time.
const readings = 3

// asleepBefore is for how long the machine was suspended between its boot and the start of this process. It is at least that, since a
// pause between the two readings makes it seem shorter.
var asleepBefore = func() (longest time.Duration) {
	for range readings {
		boot := clock(clockBoottime)
		longest = max(longest, boot-clock(clockMonotonic))
	}
	return longest
}()

// suspended reports whether the machine was suspended since the process began. A pause between the readings makes it
// seem so, each time.
func suspended() bool {
	for range readings {
		if monotonic := clock(clockMonotonic); clock(clockBoottime)-monotonic-asleepBefore <= clockStep {
			return false
		}
	}
	return true
}

func clock(id uintptr) time.Duration {
	var at syscall.Timespec
	if _, _, err := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&at)), 0); err != 0 {
		panic("distributed: clock_gettime: " + err.Error()) // every Linux that Go runs on has both clocks
	}
	return time.Duration(at.Nano())
}

// Package precise sleeps for short times. A Go timer of less than a millisecond takes 1.1 ms in an idle process, because the
// runtime waits in whole milliseconds; a kernel timer that the runtime's poller waits for like a socket does not, and blocks
// no thread meanwhile.
package precise

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// timer is one timerfd, registered with the runtime's poller by os.NewFile.
type timer struct {
	file *os.File
	fd   int
}

var timers = sync.Pool{New: func() any { return newTimer() }} // the file is closed by its finalizer

func newTimer() *timer {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		panic(fmt.Sprintf("timerfd: %v", err))
	}
	return &timer{file: os.NewFile(uintptr(fd), "timerfd"), fd: fd}
}

// Sleep pauses the calling goroutine for d, which must be more than 0, and some microseconds.
func Sleep(d time.Duration) {
	t := timers.Get().(*timer)
	defer timers.Put(t)
	if err := unix.TimerfdSettime(t.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil); err != nil {
		panic(fmt.Sprintf("timerfd: %v", err))
	}
	var expirations [8]byte
	if _, err := t.file.Read(expirations[:]); err != nil {
		panic(fmt.Sprintf("timerfd: %v", err))
	}
}

package main

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// timer is one timerfd, which the runtime's poller waits for like a socket.
type timer struct {
	file *os.File
	fd   int
}

var timers = sync.Pool{New: func() any { // the file is closed by its finalizer
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil
	}
	return &timer{file: os.NewFile(uintptr(fd), "timerfd"), fd: fd}
}}

// pause is an exact sleep: time.Sleep counts whole milliseconds when the process is idle.
func pause(d time.Duration) {
	t, _ := timers.Get().(*timer)
	if t == nil || unix.TimerfdSettime(t.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil) != nil {
		time.Sleep(d)
		return
	}
	defer timers.Put(t)
	var expirations [8]byte
	_, _ = t.file.Read(expirations[:])
}

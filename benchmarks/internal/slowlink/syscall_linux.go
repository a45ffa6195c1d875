package slowlink

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// epollWait waits with a resolution of nanoseconds, for which x/sys has no function; a negative wait has no end.
func epollWait(epoll int, events []unix.EpollEvent, wait time.Duration) (int, error) {
	var timeout *unix.Timespec
	if wait >= 0 {
		t := unix.NsecToTimespec(int64(wait))
		timeout = &t
	}
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), uintptr(unsafe.Pointer(timeout)), 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	default:
		return 0, errno
	}
}

// writeAll writes to a non-blocking socket, waiting when its buffer is full. It reports whether that worked.
func writeAll(fd int, data []byte) bool {
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		switch err {
		case nil:
			data = data[n:]
		case unix.EAGAIN:
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 1000)
		case unix.EINTR:
		default:
			return false
		}
	}
	return true
}

package child

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Die ends this process by a signal, as the command would have ended without wllock: a shell that sees SIGINT as the reason stops its
// script or loop, and goes on after an exit code. It returns where that signal ends nothing: the kernel keeps it from process 1.
func Die(s os.Signal) {
	n, ok := s.(syscall.Signal)
	if !ok || os.Getpid() == 1 {
		return
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // what a core file would tell is in that of the command
	runtime.LockOSThread()                           // a signal to this thread has ended it when the call returns
	// signal.Reset gives a signal to Go's runtime, which prints the goroutines at SIGQUIT and takes no notice of SIGUSR1. The kernel's
	// struct sigaction is all zeros for the default action, and no larger than this.
	var action [64]byte
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(&action)), 0, sigsetSize, 0, 0)
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), n)
}

// sigsetSize is that of the kernel's set of signals, 16 on MIPS: there Die returns.
const sigsetSize = 8

package child

import (
	"os"
	"runtime"
	"syscall"

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
	byDefault(n)
}

// byDefault has a signal do to this process what it does to a program that does not handle it: it dies, or is stopped, and this returns when
// somebody resumes it. signal.Reset would give the signal to Go's runtime, which prints the goroutines at SIGQUIT and takes no notice
// of SIGUSR1.
func byDefault(n syscall.Signal) {
	runtime.LockOSThread() // a signal to this very thread has acted when the call returns
	defer runtime.UnlockOSThread()
	var before action
	set := setAction(n, new(action), &before)
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), n)
	if set {
		setAction(n, &before, nil)
	}
}

// Signals that have no names are free for programs; those below the first belong to C libraries, and Go gives them to nobody.
const firstFree, lastFree = syscall.Signal(35), syscall.Signal(64)

func moreSignals() []os.Signal {
	more := []os.Signal{syscall.SIGSTKFLT, syscall.SIGPWR}
	for n := firstFree; n <= lastFree; n++ {
		more = append(more, n)
	}
	return more
}

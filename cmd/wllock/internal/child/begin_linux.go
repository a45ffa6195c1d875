package child

import (
	"fmt"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// How this process began, by nohup, systemd or a trap of a shell, is for its command, too. Go's runtime handles and unblocks most signals, keeps
// to itself what it found, and has a command begin with less. So somebody looks before the runtime does, and puts the signals that were
// ignored into ignored, and the mask into blocked: a constructor in C, or without cgo the function that the runtime asks for memory first.

// set is one of signals: bit n-1 is signal n.
type set uint64

const (
	ignore = 1 // SIG_IGN
	// setSize is the size of the kernel's sets of signals. On MIPS it is 16: there actions can be neither asked for nor set.
	setSize    = 8
	lastSignal = syscall.Signal(64)
)

// action is the kernel's struct sigaction, which begins with the handler and is no larger.
type action [8]uintptr

// setAction sets what a signal does to this process, past Go's runtime. ok: it was done, and before is what there was.
func setAction(n syscall.Signal, to, before *action) (ok bool) {
	_, _, wrong := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(before)), setSize, 0, 0)
	return wrong == 0
}

// setMask sets the signals that are blocked for this thread, past Go's runtime.
func setMask(to, before *set) {
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(before)), setSize, 0, 0)
}

// toIgnore are the signals that a command has to ignore. SIGCHLD is none of them, as under flock(1): who waits for a child cannot ignore it.
func toIgnore() set { return ignored &^ (1 << (syscall.SIGCHLD - 1)) }

// Ignore has this process ignore what it was told to, and thereby its command as well. It is called before any signal is waited for. SIGURG is
// left out: Go's runtime sends it to its own threads.
func Ignore() {
	for n := syscall.Signal(1); n <= lastSignal; n++ {
		if toIgnore()&(1<<(n-1)) != 0 && n != syscall.SIGURG {
			signal.Ignore(n)
		}
	}
}

// kept reports whether a command that this thread starts begins as this process has. Some signals Go's runtime neither ignores nor blocks.
func kept() bool {
	var now set
	for n := syscall.Signal(1); n <= lastSignal; n++ {
		var a action
		if setAction(n, nil, &a) && a[0] == ignore {
			now |= 1 << (n - 1)
		}
	}
	var mask set
	setMask(nil, &mask)
	return toIgnore()&^now == 0 && blocked&^mask == 0
}

// beginning is what begin wants to know.
func beginning() string { return fmt.Sprintf("%d-%d", toIgnore(), blocked) }

// begin makes this thread, and the command that takes its place, begin as another process has.
func begin(text string) {
	runtime.LockOSThread()
	var ignores, blocks set
	_, _ = fmt.Sscanf(text, "%d-%d", &ignores, &blocks)
	setMask(&blocks, nil)
	for n := syscall.Signal(1); n <= lastSignal; n++ {
		if ignores&(1<<(n-1)) != 0 {
			setAction(n, &action{ignore}, nil)
		}
	}
}

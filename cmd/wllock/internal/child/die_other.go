//go:build unix && !linux

package child

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// dying is longer than a signal to oneself takes.
const dying = time.Second

// Die ends this process by a signal, as the command would have ended without wllock: a shell that sees SIGINT as the reason stops its
// script or loop, and goes on after an exit code. It returns for signals that Go's runtime answers in its own way.
func Die(s os.Signal) {
	switch s {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGKILL:
		signal.Reset(s)
		_ = syscall.Kill(os.Getpid(), s.(syscall.Signal))
		time.Sleep(dying)
	}
}

func moreSignals() []os.Signal { return nil }

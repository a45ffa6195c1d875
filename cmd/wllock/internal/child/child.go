//go:build unix

// Package child runs a command, passes signals on to it, and ends all that descends from it.
//
// With a controlling terminal the command stays in the process group of this process, as under env(1) or flock(1). The group is a job of
// the shell, which may hold a pager or a whole script: the terminal is theirs as well, and what its keys send reaches all of them without
// our help. Without a terminal the command gets a group of its own, so that a signal to this process reaches the command and its
// children at once, and one to our group reaches them once. What has to be ended is found by descent, not by group.
package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// signalled is added to the number of the signal that ended a command.
const signalled = 128

// The last attempts: how long those that SIGKILL was sent to may take to end, and how often what was forked meanwhile is looked for.
const (
	killWait = time.Second
	killPoll = 20 * time.Millisecond
)

// stop stops this process until somebody resumes it. With the default action of the command's own signal a second one, just after that,
// would stop this process alone: SIGSTOP needs no handler to be changed.
func stop() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) }

// Signals are those that are passed on to the command, all that can be: docs/cli.md lists the others. The stop signals come with StopSignals.
func Signals() []os.Signal {
	return append([]os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE,
		syscall.SIGUSR1, syscall.SIGSEGV, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTERM, syscall.SIGCONT, syscall.SIGXCPU, syscall.SIGXFSZ,
		syscall.SIGVTALRM, syscall.SIGWINCH, syscall.SIGIO, syscall.SIGSYS,
	}, moreSignals()...)
}

// StopSignals are those that stop a job. Until its command runs they stop wllock as any program.
func StopSignals() []os.Signal { return []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU} }

// Ends reports whether a signal of Signals ends a program that does not handle it.
func Ends(s os.Signal) bool { return s != syscall.SIGCONT && s != syscall.SIGWINCH }

// CodeOf is the exit code of a program that a signal ended.
func CodeOf(s os.Signal) int {
	n, _ := s.(syscall.Signal)
	return signalled + int(n)
}

// Look finds a program, so that one that is missing is noticed before a lock is taken for it.
func Look(name string) (path string, err error) {
	if path, err = exec.LookPath(name); err == nil || errors.Is(err, exec.ErrDot) {
		return path, nil
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return "", &Error{NotFound, err}
	}
	return "", &Error{CannotExecute, err}
}

// shell runs what the system takes for no program, such as a script without #!, as execvp(3) has it.
const shell = "/bin/sh"

// asScript are the arguments of a shell for a script with these.
func asScript(path string, args []string) []string { return append([]string{shell, path}, args[1:]...) }

// Child is a running command.
type Child struct {
	name       string
	pid, group int
	own        bool               // the group is the command's own
	status     syscall.WaitStatus // may be read when done is closed
	done       chan struct{}      // closed by await, when the command has ended
	gone       chan struct{}      // closed by await, after done: when this process has no child any more
}

// Start starts a command with the standard files of this process and every other that it has inherited.
func Start(path string, args, env []string) (*Child, error) {
	_, terminal := foreground()
	c := &Child{name: filepath.Base(path), own: !terminal, group: unix.Getpgrp(), done: make(chan struct{}), gone: make(chan struct{})}
	adopt()
	started := make(chan error)
	go c.run(path, args, env, started)
	if err := <-started; err != nil {
		return nil, &Error{CannotExecute, fmt.Errorf("start %s: %w", path, err)} // as where the limit of processes is used up
	}
	return c, nil
}

// run starts the command and waits for its end on one thread that lives as long: Linux kills the command when the thread that started
// it ends.
func (c *Child) run(path string, args, env []string, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr := dieWithParent()
	attr.Setpgid = c.own
	first, env := through(path, env)
	process := &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}, Sys: attr}
	pid, err := syscall.ForkExec(first, args, process)
	if first == path && errors.Is(err, syscall.ENOEXEC) {
		pid, err = syscall.ForkExec(shell, asScript(path, args), process)
	}
	if c.pid = pid; c.own {
		c.group = pid
	}
	started <- err
	if err == nil {
		c.await()
	}
}

// await waits for the command, and for the orphans that it leaves, until this process has no child.
func (c *Child) await() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // no child is left
			close(c.gone)
			return
		case pid != c.pid:
		case status.Stopped():
			// A stopped command stops wllock, so that the shell takes the terminal back. It is never the other way round: while wllock
			// stands still the lock expires, beside a command that goes on. Only a command that somebody stopped apart keeps its lock.
			if n := status.StopSignal(); !c.own || n != syscall.SIGSTOP {
				stop()
			}
		default:
			c.status = status
			close(c.done)
		}
	}
}

// Done is closed when the command has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Code is the exit code of a command that has ended, as shells have it: 128 and the signal if one ended it.
func (c *Child) Code() int {
	if c.status.Signaled() {
		return signalled + int(c.status.Signal())
	}
	return c.status.ExitStatus()
}

// Signal is the one that ended the command, or nil.
func (c *Child) Signal() os.Signal {
	if c.status.Signaled() {
		return c.status.Signal()
	}
	return nil
}

// Pass passes a signal on to the command and those of its descendants that are in its process group. The error is the system's, when the
// command has become another user.
func (c *Child) Pass(s os.Signal) (err error) {
	n, ok := s.(syscall.Signal)
	switch {
	case !ok:
	case c.own:
		err = syscall.Kill(-c.pid, n)
	case !c.byKey(n):
		for _, p := range c.family() {
			if p.Pid == c.pid || p.group == c.group { // a shell makes groups of its own
				err = errors.Join(err, syscall.Kill(p.Pid, n))
			}
		}
	}
	if !errors.Is(err, syscall.EPERM) {
		return nil
	}
	return err
}

// End ends the command and everything that descends from it: by SIGTERM, and what is still there when grace has passed by SIGKILL.
// It returns when nothing is left, or a little after grace what this process could not end.
func (c *Child) End(grace time.Duration) (left []Process) {
	c.tell(syscall.SIGTERM)
	c.tell(syscall.SIGCONT) // a stopped process takes no SIGTERM
	if c.over(grace) {
		return nil
	}
	for until := time.Now().Add(killWait); time.Now().Before(until); {
		c.tell(syscall.SIGKILL)
		if c.over(killPoll) {
			return nil
		}
	}
	left = c.family()
	for i, p := range left {
		left[i].Err = syscall.Kill(p.Pid, syscall.SIGKILL)
	}
	return left
}

// tell sends a signal to a process group of the command's own at once, and to all others one by one.
func (c *Child) tell(s syscall.Signal) {
	if c.own {
		_ = syscall.Kill(-c.pid, s)
	}
	for _, p := range c.family() {
		if !c.own || p.group != c.pid {
			_ = syscall.Kill(p.Pid, s)
		}
	}
}

// alone is the command, as long as it runs.
func (c *Child) alone() []Process {
	select {
	case <-c.done:
		return nil
	default:
		return []Process{{Pid: c.pid, Name: c.name, group: c.group}}
	}
}

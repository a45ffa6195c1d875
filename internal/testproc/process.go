package testproc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Command is a program to run.
type Command struct {
	Path string
	Args []string
	Env  []string // added to this process's
	Dir  string   // where it runs
	// User is who runs it if this process is root. Otherwise it runs as the current user.
	User string
	// Family says that child processes do the work, and are killed and paused with it.
	Family bool
}

// logName is the file, in its folder, that holds the output of a process.
const logName = "out.log"

// Output runs the command to its end and returns what it said.
func (c Command) Output() (string, error) {
	cmd, err := c.cmd()
	if err != nil {
		return "", err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s", filepath.Base(c.Path), err, out)
	}
	return string(out), nil
}

func (c Command) cmd() (*exec.Cmd, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = c.Dir, append(cmd.Environ(), c.Env...), dieWithParent()
	uid, gid, err := ids(c.User)
	if err != nil || uid < 0 {
		return cmd, err
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return cmd, nil
}

// Own gives a file or folder to the user a Command with that User runs as.
func Own(path, name string) error {
	uid, gid, err := ids(name)
	if err != nil || uid < 0 {
		return err
	}
	return os.Chown(path, uid, gid)
}

// ids returns who name is, or -1 if processes run as the current user anyway.
func ids(name string) (uid, gid int, err error) {
	if name == "" || os.Getuid() != 0 {
		return -1, -1, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return -1, -1, err
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	return uid, gid, errors.Join(uidErr, gidErr)
}

// process is a running Command.
type process struct {
	cmd    *exec.Cmd
	family bool
	ended  chan struct{}
}

// start starts the command on a thread that lives as long as the process: Linux sends the parent-death signal when the
// thread that started the child ends, not when the whole parent does.
func start(c Command) (*process, error) {
	cmd, err := c.cmd()
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(filepath.Join(c.Dir, logName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = out, out
	p := &process{cmd: cmd, family: c.Family, ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(p.ended)
		defer func() { _ = out.Close() }()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		<-p.ended
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	return p, nil
}

func (p *process) exited() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill ends the process, and its children: they are listed while it is stopped and cannot make more.
func (p *process) kill() {
	var children []int
	if p.family && !p.exited() {
		_ = p.cmd.Process.Signal(syscall.SIGSTOP)
		awaitStop(p.cmd.Process.Pid)
		children = childrenOf(p.cmd.Process.Pid)
	}
	_ = p.cmd.Process.Kill()
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-p.ended
}

// pause stops the process first, so that it makes no more children. When it returns, nothing runs.
func (p *process) pause() { p.signal(syscall.SIGSTOP, awaitStop) }

func (p *process) resume() { p.signal(syscall.SIGCONT, func(int) {}) }

func (p *process) signal(what syscall.Signal, await func(pid int)) {
	if p.exited() {
		return
	}
	_ = p.cmd.Process.Signal(what)
	await(p.cmd.Process.Pid)
	if !p.family {
		return
	}
	for _, pid := range childrenOf(p.cmd.Process.Pid) {
		_ = syscall.Kill(pid, what)
		await(pid)
	}
}

// awaitStop waits until a process has stopped, which it does some time after the signal was sent.
func awaitStop(pid int) {
	for range 1000 {
		state, _ := status(pid)
		if state != "R" && state != "S" && state != "D" { // stopped, ended, or there is no /proc
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// status returns the state of a process, such as S for sleeping, and its parent; empty where there is no /proc.
func status(pid int) (state, parent string) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// PID (NAME) STATE PPID ..., and NAME may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 2 {
		return "", ""
	}
	return fields[0], fields[1]
}

// childrenOf lists the children of a process, where there is a /proc.
func childrenOf(parent int) []int {
	var children []int
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if _, of := status(pid); err == nil && of == strconv.Itoa(parent) {
			children = append(children, pid)
		}
	}
	return children
}

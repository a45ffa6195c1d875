package main

import (
	"os/exec"
	"time"
)

// process is a child process that somebody waits for.
type process struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended
}

// startProcess starts cmd. On Linux it ends with this process, also when that is killed. drained, if not nil, is closed when its
// output has been read, before which nobody may wait for it.
func startProcess(cmd *exec.Cmd, drained <-chan struct{}) (*process, error) {
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, gone: make(chan struct{})}
	go func() {
		defer close(p.gone)
		if drained != nil {
			<-drained
		}
		_ = cmd.Wait() // how it ended does not matter: it was killed, or told to end
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the process as a crash of its machine would: it can do nothing about it.
func (p *process) kill() { _ = p.cmd.Process.Kill() } // it may have ended already

// end waits for a process that has been told to end, and kills it after the grace.
func (p *process) end(grace time.Duration) {
	select {
	case <-p.gone:
	case <-time.After(grace):
		p.kill()
		<-p.gone
	}
}

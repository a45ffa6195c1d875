package sale

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// Process is a child process that somebody waits for. On Linux it ends with this process, also when that is killed.
type Process struct {
	*exec.Cmd
	End    context.CancelFunc // tells it to end; after leaveTime it is killed
	Gone   chan struct{}      // closed when it has ended
	orders io.WriteCloser     // to this program as a child: see child.go
}

// leaveTime is how long a process may take to end by itself.
const leaveTime = 2 * leaseTTL

func newProcess(path string, args ...string) *Process {
	ctx, end := context.WithCancel(context.Background())
	p := &Process{Cmd: exec.CommandContext(ctx, path, args...), End: end, Gone: make(chan struct{})}
	p.SysProcAttr, p.WaitDelay = dieWithParent(), leaveTime
	return p
}

// StartProcess starts a program that ends after SIGTERM.
func StartProcess(path string, args ...string) (*Process, error) {
	p := newProcess(path, args...)
	p.Cancel = func() error { return p.Process.Signal(syscall.SIGTERM) }
	if err := p.Start(); err != nil {
		return nil, err
	}
	go p.wait()
	return p, nil
}

func (p *Process) wait() {
	defer close(p.Gone)
	_ = p.Wait() // how it ended does not matter: it was killed, or told to end
	p.End()
}

// StartChild starts this program as a child, which ends with its input. hear is called with its news, one after the other, and at last with Gone.
func StartChild(stderr io.Writer, hear func(News)) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := newProcess(self)
	p.Env, p.Stderr = append(os.Environ(), childVariable+"=1"), stderr
	p.Cancel = func() error { return p.orders.Close() }
	if p.orders, err = p.StdinPipe(); err != nil {
		return nil, err
	}
	news, err := p.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	go func() {
		for in := json.NewDecoder(news); ; {
			var n News
			if in.Decode(&n) != nil {
				break
			}
			hear(n)
		}
		_ = news.Close()
		p.wait()
		hear(News{Gone: true})
	}()
	return p, nil
}

// Order writes to a child. It does not block: what a sale sends is far below what a pipe holds.
func (p *Process) Order(o Order) error { return json.NewEncoder(p.orders).Encode(o) }

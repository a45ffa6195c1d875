package sale

import (
	"context"
	"encoding/json"
	"errors"
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
	orders *json.Encoder      // to this program as a child: see child.go
}

// leaveTime is how long a process may take to end by itself.
const leaveTime = 2 * leaseTTL

func newProcess(path string, args ...string) *Process {
	ctx, end := context.WithCancel(context.Background())
	p := &Process{Cmd: exec.CommandContext(ctx, path, args...), End: end, Gone: make(chan struct{})}
	p.SysProcAttr, p.WaitDelay = dieWithParent(), leaveTime
	return p
}

// start starts the process. Its goroutine listens until there is nothing more to hear.
func (p *Process) start(listen func()) (*Process, error) {
	if err := p.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.Gone)
		listen()
		_ = p.Wait() // how it ended does not matter: it was killed, or told to end
		p.End()
	}()
	return p, nil
}

// StartProcess starts a program that ends after SIGTERM.
func StartProcess(path string, args ...string) (*Process, error) {
	p := newProcess(path, args...)
	p.Cancel = func() error { return p.Process.Signal(syscall.SIGTERM) }
	return p.start(func() {})
}

// StartChild starts this program as a child, which ends with its input. hear is called with its news, one after the other, and at last with Gone.
func StartChild(stderr io.Writer, hear func(News)) (*Process, error) {
	self, err := os.Executable()
	p := newProcess(self)
	p.Env, p.Stderr = append(os.Environ(), childVariable+"=1"), stderr
	orders, noInput := p.StdinPipe()
	news, noOutput := p.StdoutPipe()
	if err := errors.Join(err, noInput, noOutput); err != nil {
		return nil, err
	}
	p.orders, p.Cancel = json.NewEncoder(orders), orders.Close
	return p.start(func() {
		for in := json.NewDecoder(news); ; {
			var n News
			if in.Decode(&n) != nil {
				break
			}
			hear(n)
		}
		_ = news.Close()
		hear(News{Gone: true})
	})
}

// Order writes to a child. It does not block: what a sale sends is far below what a pipe holds. One that does not read has ended, and is
// heard of.
func (p *Process) Order(o Order) { _ = p.orders.Encode(o) }

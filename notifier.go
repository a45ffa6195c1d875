package wllock

import (
	"context"
	"sync"
)

// notifier runs loggers and exporters on goroutines of their own, so that a slow one cannot delay renewals or hand-offs.
// Each call has a goroutine, because such events are rare.
type notifier struct {
	mu    sync.Mutex
	calls int           // guarded by mu
	idle  chan struct{} // guarded by mu; closed when calls is 0 again
}

func (n *notifier) notify(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.calls == 0 {
		n.idle = make(chan struct{})
	}
	n.calls++
	go func() {
		defer n.done()
		f()
	}()
}

func (n *notifier) done() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.calls--; n.calls == 0 {
		close(n.idle)
	}
}

// flush waits until all calls have returned, or ctx ends.
func (n *notifier) flush(ctx context.Context) {
	n.mu.Lock()
	idle, waits := n.idle, n.calls > 0
	n.mu.Unlock()
	if waits {
		select {
		case <-idle:
		case <-ctx.Done():
		}
	}
}

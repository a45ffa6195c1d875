package wllock

import (
	"context"
	"sync"
)

// teller calls what is not ours, loggers and exporters, from where one that stands still would hold up others: other
// leases are renewed, and other turns passed on, from there. Each call has a goroutine, for such events are rare.
type teller struct {
	mu     sync.Mutex
	calls  int           // guarded by mu
	silent chan struct{} // guarded by mu; closed when calls is 0 again
}

func (t *teller) tell(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == 0 {
		t.silent = make(chan struct{})
	}
	t.calls++
	go func() {
		defer t.ended()
		f()
	}()
}

func (t *teller) ended() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls--; t.calls == 0 {
		close(t.silent)
	}
}

// told waits until all that was to be told has been, or ctx ends.
func (t *teller) told(ctx context.Context) {
	t.mu.Lock()
	silent, waits := t.silent, t.calls > 0
	t.mu.Unlock()
	if waits {
		select {
		case <-silent:
		case <-ctx.Done():
		}
	}
}

package etcdlock

import "sync"

// workers look at queues in the background: after events, at intervals, and all of them after a reconnect.
type workers struct {
	b *Backend

	mu      sync.Mutex
	queue   []*attempt // guarded by mu
	running int        // guarded by mu
}

// maxLooking is how many look at a time; each sends two requests, one after the other.
const maxLooking = 64

// add has the attempt looked at. The caller holds its mutex.
func (w *workers) add(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, a)
	if w.running >= maxLooking || !w.b.begin() {
		return
	}
	w.running++
	go func() {
		defer w.b.tasks.Done()
		for a := w.next(); a != nil; a = w.next() {
			a.work()
		}
	}()
}

func (w *workers) next() *attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		w.running--
		return nil
	}
	a := w.queue[0]
	w.queue = w.queue[1:]
	return a
}

package parts

import "sync"

// Tasks are what a backend does in the background, and its Close waits for. The zero value has none.
type Tasks struct {
	mu     sync.Mutex
	sealed bool           // guarded by mu
	tasks  sync.WaitGroup // Add under mu, unless sealed
}

// Begin counts a task, for which the caller has to call Done. It reports false after Close.
func (t *Tasks) Begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sealed {
		t.tasks.Add(1)
	}
	return !t.sealed
}

// Done ends a task that was begun.
func (t *Tasks) Done() { t.tasks.Done() }

// Go runs a task on a goroutine of its own. It reports false after Close, and f is not run.
func (t *Tasks) Go(f func()) bool {
	begun := t.Begin()
	if begun {
		go func() {
			defer t.Done()
			f()
		}()
	}
	return begun
}

// Close lets no more tasks begin and waits for the end of those that have.
func (t *Tasks) Close() {
	t.mu.Lock()
	t.sealed = true
	t.mu.Unlock()
	t.tasks.Wait()
}

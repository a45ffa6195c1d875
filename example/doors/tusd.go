package doors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/wllock/wllock"
)

// Uploads is a Locker of tusd for uploads that any process may go on with (UseIn). An upload has the lock system:Name:id.
//
// A client that lost its connection goes on in another request, perhaps to another process, while the first request still waits for it.
// So the holder looks whether others wait, and tusd then ends its request. Over a backend without Inspect (memcachelock) it sees
// those of its own process only.
//
// If the lock is lost, tusd ends the request likewise. It reads no more of the body, but for GracefulRequestCompletionTimeout it may store what
// it has read, beside the next holder. Set that to a second: it is ten by default. What a dead process had is free after T, and
// AcquireLockTimeout, 20 s by default, has to be longer.
type Uploads struct {
	Locker *wllock.Locker
	Name   string        // second part of the locks' names: "upload"
	Look   time.Duration // from one look at who waits to the next, a request to the backend for each upload under way. 0: a second

	mu      sync.Mutex
	waiting map[string]int // guarded by mu; requests of this process, by key
}

// errUnavailable is what clients get to see of an error.
var errUnavailable = handler.NewError("ERR_LOCK_UNAVAILABLE", "the lock of the upload is unavailable", http.StatusServiceUnavailable)

// UseIn adds the Locker to a composer.
func (u *Uploads) UseIn(composer *handler.StoreComposer) { composer.UseLocker(u) }

// NewLock implements handler.Locker.
func (u *Uploads) NewLock(id string) (handler.Lock, error) {
	return &upload{all: u, key: keyOf(id)}, nil
}

// count adds to the requests that wait for a key.
func (u *Uploads) count(key string, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.waiting == nil {
		u.waiting = map[string]int{}
	}
	if u.waiting[key] += n; u.waiting[key] == 0 {
		delete(u.waiting, key)
	}
}

// wanted reports whether another request waits for a key.
func (u *Uploads) wanted(ctx context.Context, key string) bool {
	u.mu.Lock()
	here := u.waiting[key]
	u.mu.Unlock()
	if here > 0 {
		return true
	}
	found, err := u.Locker.Inspect(ctx, u.Name, key)
	return err == nil && len(found.Waiters) > 0
}

// upload is the lock of one request.
type upload struct {
	all  *Uploads
	key  string
	lock *wllock.Lock
	end  context.CancelFunc // of watch
}

// Lock implements handler.Lock.
func (u *upload) Lock(ctx context.Context, requestUnlock func()) error {
	own, end := context.WithCancel(context.WithoutCancel(ctx)) // ctx ends when Lock has returned, and the lock's goes on
	stop := context.AfterFunc(ctx, end)
	u.all.count(u.key, 1)
	lock, err := u.all.Locker.Acquire(own, u.all.Name, u.key, wllock.WithLockTimeMax(0))
	u.all.count(u.key, -1)
	switch inTime := stop(); {
	case err == nil && inTime:
		u.lock, u.end = lock, end
		go u.watch(lock, requestUnlock)
		return nil
	case err == nil: // ctx ended first
		_ = release(lock)
		return handler.ErrLockTimeout
	case inTime && !errors.Is(err, wllock.ErrWaitTimeout):
		end()
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	end()
	return handler.ErrLockTimeout
}

// watch asks the request to end when another one waits, or the lock is lost.
func (u *upload) watch(lock *wllock.Lock, requestUnlock func()) {
	look := time.NewTicker(cmp.Or(u.all.Look, time.Second))
	defer look.Stop()
	for held := lock.Context(); ; {
		select {
		case <-held.Done():
			if errors.Is(context.Cause(held), wllock.ErrLeaseLost) {
				requestUnlock()
			}
			return
		case <-look.C:
			if u.all.wanted(held, u.key) {
				requestUnlock()
				return
			}
		}
	}
}

// Unlock implements handler.Lock.
func (u *upload) Unlock() error {
	if u.lock == nil {
		return errors.New("doors: tusd: Unlock without Lock")
	}
	u.end()
	lock := u.lock
	u.lock = nil
	return release(lock)
}

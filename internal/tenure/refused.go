package tenure

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

// What a caller with NoWait does for the next one when it is refused. The holder may have no caller inside and keep the
// lease because nobody has told it that others want it. memlock and redislock tell it in the request that is refused, which costs
// nobody anything; HeldError.Told says so. Over other backends all that reaches a holder is a place in the queue. So the caller takes
// one, which asks the backend a second time, and the instance keeps it until the holder has learned of it. What it is granted then,
// when the lease has lingered, is released at once.
//
// Only instances that linger themselves do so, because the holder probably does as well: those of a service have the same settings.
// Nobody else pays. And each does it once per T for a key, because it makes a holder whose callers come without a pause give up
// its tenure as any other that waits does.

// lastTimes are when something happened last, by key. It forgets all when there are too many keys: a caller is then refused once more.
type lastTimes struct {
	some atomic.Bool // else nothing has happened: most instances never need the mutex

	mu   sync.Mutex
	last map[string]time.Time // guarded by mu
}

const mostTimes = 4096

func (m *lastTimes) note(key string) { m.again(key, 0) }

// within reports that it happened less than d ago.
func (m *lastTimes) within(key string, d time.Duration) bool {
	if !m.some.Load() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.last[key]
	return ok && time.Since(last) < d
}

// again notes that it happens now, and reports true, unless it happened less than d ago.
func (m *lastTimes) again(key string, d time.Duration) bool {
	m.some.Store(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if last, ok := m.last[key]; ok && now.Sub(last) < d {
		return false
	}
	if m.last == nil || len(m.last) >= mostTimes {
		m.last = map[string]time.Time{}
	}
	m.last[key] = now
	return true
}

// asksAfter reports that a caller with NoWait that got err is to take a place for a moment.
func (g *Group) asksAfter(err error, key string) bool { // rule T12
	if err == nil || g.config.Linger == 0 || g.config.Adaptive || !errors.Is(err, distributed.ErrHeld) {
		return false
	}
	if held, ok := errors.AsType[*distributed.HeldError](err); ok && held.Told {
		return false
	}
	return g.refused.again(key, g.config.TTL)
}

// askAfter asks again, and leaves the place to a goroutine that the key is pinned for. The caller has the turn. If the lock has
// become free meanwhile the caller has it, else it is refused as before.
func (t *Tenure) askAfter(ctx context.Context, ask Ask, refused error) (distributed.Lease, error) {
	ask.Now, ask.NoWait = time.Now(), false
	lease, place, err := t.ask(ctx, ask, nil)
	switch {
	case err != nil:
		return nil, refused
	case lease != nil:
		return lease, nil
	}
	t.mu.Lock()
	t.leaving++
	tag := t.tag
	t.mu.Unlock()
	go t.keepFor(place, tag)
	return nil, refused
}

// keepFor keeps a place until the holder has learned of it, which it does at its next renewal if nothing is pushed, and then gives
// back the place or what it was granted. A later request of this instance may have the backend end the place before.
func (t *Tenure) keepFor(place distributed.Place, tag any) {
	defer t.left()
	ttl := t.group.config.TTL
	timer := time.NewTimer(distributed.RenewInterval(ttl) + distributed.HeartbeatInterval(ttl))
	defer timer.Stop()
	give := place.Leave
	select { // a grant that comes as the time ends lies in the place, and Leave releases it
	case lease, ok := <-place.Granted():
		if !ok {
			return
		}
		give = func(ctx context.Context) error {
			if err := lease.Release(ctx); !errors.Is(err, distributed.ErrLeaseLost) {
				return err
			}
			return nil
		}
	case <-timer.C:
	case <-t.group.closing:
	}
	t.mu.Lock()
	t.parting.count++ // the next caller with NoWait waits for the end of it
	t.mu.Unlock()
	t.part(give, tag)
}

// An Enter whose caller gave up before the answer may bring something all the same, and the backend removes that in the background. It
// keeps others from the lock for this long, about an exchange, and must not keep this instance from it.

const shortestPause, longestPause = time.Millisecond, 16 * time.Millisecond

// gaveUp notes that a request has ended without an answer.
func (g *Group) gaveUp(key string) { g.doubted.note(key) }

// byOurselves reports that a caller with NoWait was refused by a request that this instance has given up within the claim window.
func (t *Tenure) byOurselves(err error) bool { // rule T3
	held, ok := errors.AsType[*distributed.HeldError](err)
	return ok && held.Holder == t.instance && t.group.doubted.within(t.key, distributed.ClaimWindow(t.group.config.TTL))
}

// askOn asks again, for H at most, while what refuses the caller is our own.
func (t *Tenure) askOn(ctx context.Context, ask Ask) (lease distributed.Lease, place distributed.Place, err error) {
	end := time.NewTimer(distributed.HeartbeatInterval(t.group.config.TTL))
	defer end.Stop()
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		over := false
		select {
		case <-time.After(pause):
		case <-end.C:
			over = true
		case <-ctx.Done():
			over = true
		}
		ask.Now = time.Now()
		if lease, place, err = t.ask(ctx, ask, nil); over || !t.byOurselves(err) {
			return lease, place, err
		}
	}
}

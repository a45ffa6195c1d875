package outage

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

// judges are those in use, by their backends.
var judges = struct {
	mu  sync.Mutex
	all map[distributed.Backend]*judge
}{all: map[distributed.Backend]*judge{}}

// judgeOf returns the judge of b, which leave returns. A backend that cannot be observed, or compared, gets one for each policy, since that
// policy's calls are all it hears of.
func judgeOf(b distributed.Backend, ttl time.Duration) *judge {
	judges.mu.Lock()
	defer judges.mu.Unlock()
	o, observable := b.(distributed.Observable)
	shared := observable && reflect.ValueOf(b).Comparable()
	j := (*judge)(nil)
	if shared {
		j = judges.all[b]
	}
	if j == nil {
		j = newJudge(b, ttl)
		if observable {
			j.observes = true
			j.unobserve = o.Observe(j.observe)
		}
		if j.shared = shared; shared {
			judges.all[b] = j
		}
	}
	j.users++
	return j
}

// join has l told of outages, also of one that goes on.
func (j *judge) join(l listener, ttl time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ttl = min(j.ttl, ttl)
	j.listeners = append(j.listeners, l)
	if o := j.current.Load(); o != nil {
		l.suspected(o)
		if o.isAway() {
			l.away(o)
		}
	}
}

func newJudge(b distributed.Backend, ttl time.Duration) *judge {
	j := &judge{backend: b, base: time.Now().Add(-1), ttl: ttl, wake: make(chan struct{}, 1), unobserve: func() {}}
	j.ctx, j.cancel = context.WithCancel(context.Background())
	return j
}

// leave ends the judge with the last of its policies.
func (j *judge) leave(l listener) {
	if j.left(l) {
		j.wg.Wait()
	}
}

// left takes l off the listeners, and reports whether it was the last policy; then the judge ends.
func (j *judge) left(l listener) bool {
	judges.mu.Lock()
	defer judges.mu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.listeners {
		if j.listeners[i] == l {
			j.listeners = append(j.listeners[:i:i], j.listeners[i+1:]...)
			break
		}
	}
	j.users--
	if j.users > 0 {
		return false
	}
	j.cancel() // under mu: either start finds it, or Wait the goroutine
	if j.shared {
		delete(judges.all, j.backend)
	}
	j.unobserve()
	return true
}

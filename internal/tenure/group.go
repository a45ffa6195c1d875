package tenure

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
)

// Config is what the tenures of one instance have in common.
type Config struct {
	Backend     distributed.Backend
	Instance    string
	TTL         time.Duration
	MaxHandoffs int           // turns per tenure after the first while other instances wait, 0 for none at all
	MaxTenure   time.Duration // the same in time
	Linger      time.Duration // how long an unused lease is kept, 0 for not at all
	Adaptive    bool          // only that of a key in steady use lingers: see Tenure.steady
	Queue       Queue
	// Failed gets the errors of releases that the backend did not confirm.
	Failed func(tag any, key string, err error)
	// Renewed is called after each renewal. err: it had no answer. nil: it is not called.
	Renewed func(tag any, err error)
	// Outage is the policy that Backend has for outages, or nil.
	Outage Outage
}

// Queue is what a tenure needs of the local tier besides the turn.
type Queue interface {
	// Idle takes the turn of a pinned lane if no caller has it.
	Idle(key string, lane int) (Turn, bool)
	// Unpin takes back one Turn.Pin.
	Unpin(key string, lane int)
	// Others returns the tenures of the key's other lanes that are in use.
	Others(key string, lane int) []*Tenure
}

// Turn is the local turn, as far as a tenure is concerned.
type Turn interface {
	Baton() *Tenure // the tenure of this lane
	Pin()           // keeps it although no caller uses it
	Leave() bool    // ends the turn
}

// Group makes the tenures of one instance and ends what they keep.
type Group struct {
	config  Config
	refused lastTimes // when it asked after what refused it
	doubted lastTimes // when a request of ours ended without an answer
	wanted  lastTimes // when another instance wanted a lease that lingered
	awaited lastTimes // with Adaptive: when another instance waited for a lease
	linger  *deadline.Set[*Tenure]
	closing chan struct{} // closed by Close: nobody waits at the backend any more
	shut    atomic.Bool   // set before closing is closed
}

// NewGroup returns a Group.
func NewGroup(c Config) *Group {
	g := &Group{config: c, closing: make(chan struct{})}
	g.linger = deadline.New(func(_ time.Time, due []*Tenure) {
		for _, t := range due {
			t.endLinger()
		}
	})
	return g
}

// New returns the tenure of a lane that comes into use. Most keys have only lane 0. It reuses the tenure of an unused lane if
// possible. An unused tenure holds no lease or place and ignores late events of old ones. Only the timer of lingering may fire
// late and read the key.
func (g *Group) New(key string, lane int, former *Tenure) *Tenure {
	if former == nil || former.lingered {
		former = &Tenure{group: g, instance: g.config.Instance}
		former.linger.Owner = former // once: the timer's goroutine reads it
	}
	former.key = key
	if former.lane != lane {
		former.lane, former.instance = lane, fmt.Sprintf("%s#%d", g.config.Instance, lane) // rule P3
	}
	return former
}

// Close ends all waiting at the backend (rule T8), and lingering from now on.
func (g *Group) Close() {
	if !g.shut.Swap(true) {
		close(g.closing)
	}
}

// Stop frees the timer, when no tenure is in use any more.
func (g *Group) Stop() { g.linger.Close() }

func (g *Group) closed() bool { return g.shut.Load() }

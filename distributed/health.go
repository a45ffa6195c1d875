package distributed

import (
	"context"
	"time"

	"github.com/wllock/wllock/internal/keyless"
)

// Kinds of ErrUnavailable, which say what became of a request. An error that Is one of them Is ErrUnavailable, too.
var (
	// ErrRefused says that the service answered and would not do it: a missing right, a wrong password, no memory, a read-only server, or one
	// that is too old.
	ErrRefused = keyless.Errorf("lock backend refused")
	// ErrUnreached says that there was no connection, so that nothing was sent and nothing can have been done.
	ErrUnreached = keyless.Errorf("lock backend not reached")
)

// Observable is an optional ability of a Backend: it reports the outcome of its exchanges with the service. As long as the service answers any
// request, no separate probe is needed.
type Observable interface {
	Backend
	// Observe has f called after every exchange of any caller, until stop is called. Calls come from any goroutine, must not block, and can
	// still come for a moment after stop.
	Observe(f func(Exchange)) (stop func())
	// Echo sends the lightest possible request, of one round trip. It returns nil if the service answers, even if the service would refuse to
	// work. It is reported to the observers like every other exchange.
	Echo(ctx context.Context) error
}

// Exchange is one request to the service and its outcome.
type Exchange struct {
	Sent time.Time     // when the request was sent. Zero: just now, and the answer is there
	RTT  time.Duration // until the answer. 0: there was none
	Err  error         // nil: answered. Is ErrRefused: answered with a refusal. Is ErrUnreached: not sent. Otherwise there was no answer
}

// TTLRegistry is an optional ability of a Backend: its instances can find out how long the leases of the others can last.
type TTLRegistry interface {
	Backend
	// LongestTTL notes that a system uses own as a TTL of leases, and returns the longest TTL in use: at least own. A note lasts minutes, at
	// least 2 of its TTLs, from its last repetition. An instance notes its TTL before the first Enter with it and then every minute.
	LongestTTL(ctx context.Context, system string, own time.Duration) (time.Duration, error)
}

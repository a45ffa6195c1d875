package distributed

import (
	"context"
	"time"

	"github.com/wllock/wllock/internal/keyless"
)

// Kinds of ErrUnavailable that say what came of a request. They stand beside it: an error that Is one of them Is
// ErrUnavailable, too.
var (
	// ErrRefused says that the service answered and would not do it: a missing right, a wrong password, no memory, a
	// server that only reads, one that is too old.
	ErrRefused = keyless.Errorf("lock backend refused")
	// ErrUnreached says that there was no connection, so that nothing was sent and nothing can have been done.
	ErrUnreached = keyless.Errorf("lock backend not reached")
)

// Observable is an optional ability of a Backend: it reports what comes of its exchanges with the service. As long as the
// service answers any request, no other has to ask whether it is there.
type Observable interface {
	Backend
	// Observe has f called after every exchange, whoever asked for it, until stop is called. Calls come from any
	// goroutine, must not block, and can still come for a moment after stop.
	Observe(f func(Exchange)) (stop func())
	// Echo is the lightest question there is, of one round trip: nil if the service answers, whether it would do its work
	// or not. It is reported to the observers like every other exchange.
	Echo(ctx context.Context) error
}

// Exchange is one question to the service and what came of it.
type Exchange struct {
	Sent time.Time     // when the question left. Zero: just now, and the answer is there
	RTT  time.Duration // until the answer. 0: there was none
	Err  error         // nil: answered. Is ErrRefused: answered with a refusal. Is ErrUnreached: not sent. Else there was no answer
}

// TTLRegistry is an optional ability of a Backend: its instances can find out how long the leases of the others can last.
type TTLRegistry interface {
	Backend
	// LongestTTL notes that own is in use in a system, as a TTL of leases, and returns the longest that is: at least own. A
	// note lasts minutes, at least 2 of its TTLs, from its last repetition on. Who uses a TTL notes it before the first Enter
	// with it and then every minute.
	LongestTTL(ctx context.Context, system string, own time.Duration) (time.Duration, error)
}

package redislock

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
)

// session is this process's conversation with the server: all that attempts, leases, heartbeats and background tasks
// need in order to ask something.
type session struct {
	sender
	tr  conn.Transport
	ctx context.Context // ends with Close: nothing is asked again
	log *slog.Logger
	rtt atomic.Int64 // a round trip as measured last, in ns; 0 before the first
}

func (s *session) roundTrip() time.Duration { return time.Duration(s.rtt.Load()) }

const (
	// Pauses between repeated tries: the first short, because most failures are a lost connection; then longer, so that
	// a server that comes back is not met by a storm.
	firstPause, longestPause = 5 * time.Millisecond, 250 * time.Millisecond

	shortestTry = 20 * time.Millisecond // see tryTimeout

	// movePatience is how long an Enter waits, if its caller does, for a slot that is being moved: the server answers, and
	// has done nothing.
	movePatience = 30 * time.Second
)

// ask runs a call until it is answered, at most for the budget: a repeat gets the first answer (rule R1). It returns
// when the request was sent that was answered. The caller's cancellation is noticed between tries.
func (s *session) ask(ctx context.Context, c *conn.Call, ttl, budget time.Duration) (sent time.Time, err error) {
	begin := time.Now()
	var why error
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		sent = time.Now()
		c.Tries++
		s.try(ctx, ttl, c)
		kind := conn.Classify(c.Err)
		if kind == conn.None {
			return sent, nil
		}
		why = conn.MoreTelling(why, c.Err)
		if s.ctx.Err() != nil {
			return sent, distributed.ErrClosed
		}
		if ctx.Err() != nil {
			return sent, conn.Interrupted(ctx, c, why)
		}
		patience := budget
		if c.Script == enterScript && conn.Moving(c.Err) {
			patience = max(budget, movePatience)
		}
		if kind == conn.Permanent || time.Since(begin) > patience {
			return sent, conn.Unavailable(c.Script.Name, why)
		}
		s.pause(ctx, jittered(pause))
	}
}

// try sends calls once, in one pipeline. ttl is the shortest of those concerned.
func (s *session) try(ctx context.Context, ttl time.Duration, calls ...*conn.Call) {
	s.tr.Do(conn.Within(ctx, tryTimeout(ttl, s.roundTrip())), calls...)
}

// tryTimeout is how long one exchange may take before it is repeated: H, because a later answer leaves too little of the
// claim window; but no less than a busy machine or a new connection over this network needs, and no more than makes sense
// in any network, because others may wait for the same exchange.
func tryTimeout(ttl, rtt time.Duration) time.Duration {
	return min(max(distributed.HeartbeatInterval(ttl), shortestTry, (coldTrips+1)*rtt), conn.LongestTry)
}

// pause sleeps, but not past the end of ctx or of the session.
func (s *session) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

// jittered is d plus or minus up to a tenth, so that what began together does not stay together.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d)/5+1))
}

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
	rtt atomic.Int64 // the round trip, in ns; 0 before the first was measured. See observe

	acks      conn.Acks
	coldTrips time.Duration // how many round trips an exchange on a new connection takes
}

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
	c.Sent = begin
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		c.Tries++
		most := tryTimeout(ttl, s.network())
		if c.Acked {
			most += s.acks.Within
		}
		s.tr.Do(conn.Within(ctx, most), c.Alone()...)
		kind := conn.Classify(c.Err)
		if kind == conn.None {
			return c.Sent, nil
		}
		why = conn.MoreTelling(why, c.Err)
		if s.ctx.Err() != nil {
			return c.Sent, distributed.ErrClosed
		}
		if ctx.Err() != nil {
			return c.Sent, conn.Interrupted(ctx, c, why)
		}
		patience := budget
		if c.Script == enterScript && conn.Moving(c.Err) {
			patience = max(budget, movePatience)
		}
		if kind == conn.Permanent || time.Since(begin) > patience {
			return c.Sent, conn.Unavailable(c.Script.Name, why)
		}
		s.pause(ctx, jittered(pause))
		c.Sent = time.Now()
	}
}

// try sends calls once, in one pipeline. ttl is the shortest of those concerned.
func (s *session) try(ctx context.Context, ttl time.Duration, calls ...*conn.Call) {
	s.tr.Do(conn.Within(ctx, tryTimeout(ttl, s.network())), calls...)
}

// tryTimeout is how long one exchange may take before it is repeated: H, because a later answer leaves too little of the
// claim window, and no more than makes sense in most networks, because others may wait for the same exchange; but no less
// than a busy machine needs, or over this network a new connection and a script that the server does not know yet.
func tryTimeout(ttl time.Duration, n network) time.Duration {
	if n.rtt == 0 { // not measured yet: allow for the slowest network that leases can be kept over
		return min(max(ttl, shortestTry), pingBudget)
	}
	usual := min(max(distributed.HeartbeatInterval(ttl), shortestTry), conn.LongestTry)
	return max(usual, min(n.cold+n.rtt+n.rtt/2, ttl))
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

package etcdlock

import (
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

// alive is what this machine knows of a session's life: up to when etcd cannot have ended it, by our own clock.
//
// The leader counts an etcd lease's TTL anew from the moment at which it carries out a keepalive, which is not before we sent
// it. So the lease lives for its TTL from the send of the latest keepalive that was answered; the client's own session does not
// count so (etcd issue 11456). A new leader gives every lease its full TTL and an election timeout: a change of leaders
// extends, and never shortens.
//
// But a leader that the others have left answers keepalives until it notices. It checks once per election timeout E whether it
// has heard of a quorum since the check before, so it goes on for up to 2E after it was left. The others elect another one E
// after they have heard of it at the earliest, and that one ends no lease before TTL + E. What the old leader says at its
// last moment therefore promises no more than what the new one keeps, up to the ticks in which both count: one each. A tick is
// E/10 by default and TTLs are at least 1.5 E, so two ticks are TTL/7.5 at most, and a seventh of the TTL is not counted on
// (rule E4). Neither is the drift allowance.
type alive struct {
	ttl   time.Duration
	until atomic.Pointer[time.Time]
	last  atomic.Pointer[time.Time] // when the latest keepalive that was answered was sent
}

// staleShare is the part of the TTL that is not counted on.
const staleShare = 7

func newAlive(sent time.Time, ttl time.Duration) *alive {
	a := &alive{ttl: ttl}
	a.proven(sent)
	return a
}

// proven notes that a request was answered that gave the session its full time. Only the session's task calls it.
func (a *alive) proven(sent time.Time) {
	until := distributed.Validity(sent, a.ttl-a.ttl/staleShare)
	a.until.Store(&until)
	a.last.Store(&sent)
}

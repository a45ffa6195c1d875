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
// But a keepalive is not agreed on by a quorum: a leader that the others have left answers it, until it notices; one that was stopped
// meanwhile, until it has read its messages. What it says is worth nothing to the new one, which may have counted from much
// earlier. So a keepalive counts once a read that was sent after its answer has been answered in the same term: a quorum confirms that
// read, so the leader of the keepalive was still the leader, and a later one counts from a later moment (rule E4).
type alive struct {
	ttl   time.Duration
	until atomic.Pointer[time.Time]
	last  atomic.Pointer[time.Time] // when the latest keepalive that was answered was sent
}

func newAlive(sent time.Time, ttl time.Duration) *alive {
	a := &alive{ttl: ttl}
	a.proven(sent)
	return a
}

// proven notes that a request was answered that gave the session its full time. Only the session's task calls it.
func (a *alive) proven(sent time.Time) {
	until := distributed.Validity(sent, a.ttl)
	a.until.Store(&until)
	a.last.Store(&sent)
}

package zklock

import (
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

// proof is what this machine knows of a session's life: up to when the ensemble cannot have ended it, by our own clock.
//
// The leader ends a session. Requests that go to another server touch the session there only, and that server tells the leader
// with its answer to the leader's next ping, every half tick (in ZooKeeper's source: Follower.ping, LearnerHandler, Leader.lead).
// So the answer to a read proves nothing: a server that has lost the leader goes on answering reads until it notices. And
// the answer to a sync, which the leader gives, proves that the server was connected to it; the touch itself may still be on
// its way. Validity therefore counts from the latest sync that was answered half a tick before another one was
// sent that was answered, too (rule Z4). So a leader that has been replaced proves nothing either, if it notices within a quarter of
// the time-out: one that was stopped does within a tick. The handshake of another connection is not asked of a majority, and counts as a
// sync.
//
// One goroutine writes; anybody reads.
type proof struct {
	timeout time.Duration
	heard   []heard // syncs that are not proven yet, in order; of the writer
	until   atomic.Pointer[time.Time]
	last    atomic.Pointer[time.Time] // when the latest that was answered was sent
}

// heard is a sync, or the handshake of another connection, that was answered.
type heard struct{ sent, back time.Time }

// lag is half a tick or more: a server grants no time-out below 2 ticks, unless it is configured to. Of an observer that is
// connected to a follower it takes a whole tick, and a time-out of 4.
func lag(timeout time.Duration) time.Duration { return timeout / 4 }

func newProof(sent time.Time, timeout time.Duration) *proof {
	p := &proof{timeout: timeout}
	p.proven(sent)
	p.last.Store(&sent)
	return p
}

// proven notes that the leader, which had a majority, heard of the session at sent or later.
func (p *proof) proven(sent time.Time) {
	until := distributed.Validity(sent, p.timeout)
	if old := p.until.Load(); old == nil || until.After(*old) {
		p.until.Store(&until)
	}
}

// answered notes that one was answered.
func (p *proof) answered(sent, back time.Time) {
	for len(p.heard) > 0 && sent.Sub(p.heard[0].back) >= lag(p.timeout) {
		p.proven(p.heard[0].sent)
		p.heard = p.heard[1:]
	}
	p.heard = append(p.heard, heard{sent, back})
	p.last.Store(&sent)
}

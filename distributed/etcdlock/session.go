package etcdlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/parts"
)

// session is one etcd lease, kept alive by one task: liveness, apart from the order that the keys keep. All keys of all leases
// with its TTL are attached to it. Its time ends by our own clock (see alive), or when etcd says that it has expired; then
// it is over for good, and a new one takes its place.
//
//	opening ── granted ──▶ ready ── kept alive ... silent ... kept alive ── expired, or close ──▶ over
type session struct {
	*driver.Task[claim]
	b          *Backend
	alive      atomic.Pointer[alive]           // nil before it is ready
	conn       atomic.Pointer[grpc.ClientConn] // nil before it is ready
	id         atomic.Int64                    // of the etcd lease; 0 before it is ready
	guard      atomic.Int64                    // see guardKey
	keepalives keepalives                      // of Beat
}

const (
	// beatsPerTTL is how many keepalives go out per TTL, at least one each longestBeat: three quarters of the TTL are left at
	// every moment of a session that works.
	beatsPerTTL = 10
	longestBeat = time.Second
	// silenceShare of the TTL, at most longestSilence, is how long an answer is waited for before another server is tried: time
	// for three more within the session.
	silenceShare   = 6
	longestSilence = 3 * time.Second
	// reconnectPause is the least time between two tries to connect that requests have caused.
	reconnectPause = 50 * time.Millisecond
	// openPatience is for a session that is not there yet, of whatever TTL: nothing is held yet, and a busy server may take a second.
	openPatience = 2 * time.Second
)

func (b *Backend) newSession(t *driver.Task[claim]) (*session, error) {
	s := &session{Task: t, b: b}
	s.keepalives.s = s
	return s, nil
}

// ttl is the one that the server has granted; before that the one we want.
func (s *session) ttl() time.Duration {
	if a := s.alive.Load(); a != nil {
		return a.ttl
	}
	return s.TTL
}

// patience is how long an answer is waited for.
func (s *session) patience() time.Duration {
	if p := s.b.set.patience; p != 0 {
		return p
	}
	if s.alive.Load() == nil {
		return openPatience
	}
	return min(s.ttl()/silenceShare, longestSilence)
}

// Patience implements driver.Session: the answer to a deletion is waited for as long as its first tries take, one of which may go to a
// server that hangs.
func (s *session) Patience() time.Duration { return quickTries * s.patience() }

func (s *session) beat() time.Duration { return min(s.ttl()/beatsPerTTL, longestBeat) }

// Until implements driver.Session: the time up to which the session lives at least.
func (s *session) Until() time.Time { return *s.alive.Load().until.Load() }

// Healthy implements driver.Session: it reports that the server has not been silent for too long. It is asked at every turn.
func (s *session) Healthy(now time.Time) bool {
	a := s.alive.Load()
	return a != nil && now.Sub(*a.last.Load()) < s.patience()+2*s.beat()
}

func (s *session) connection() *grpc.ClientConn { return s.conn.Load() }

func (s *session) lease() int64 { return s.id.Load() }

// guardKey is compared by every create of the session, and written by removals that cannot know whether the create is still
// under way: one that comes later finds the guard changed and does nothing (rule E1). It is written for nothing else, so
// that most sessions never have one.
func (s *session) guardKey() string { return s.b.set.prefix + "/" + guardName + sessionName(s.lease()) }

// writeKey is written for the revision that this makes.
func (s *session) writeKey() string { return s.b.set.prefix + "/" + writeName + sessionName(s.lease()) }

// guarded notes the revision of the guard. Answers may overtake each other.
func (s *session) guarded(revision int64) {
	for old := s.guard.Load(); revision > old && !s.guard.CompareAndSwap(old, revision); old = s.guard.Load() {
	}
}

// failed takes the error of an exchange.
func (s *session) failed(err error) {
	switch {
	case errors.Is(err, driver.ErrOver):
		s.expired()
	case errors.Is(err, distributed.ErrUnreached):
		s.reconnect()
	}
}

// reconnect has the client try to connect now, however long the outage has made its pauses; not for every request.
func (s *session) reconnect() {
	now := time.Since(s.b.base)
	last := s.b.reconnected.Load()
	if conn := s.connection(); conn != nil && now-time.Duration(last) > reconnectPause && s.b.reconnected.CompareAndSwap(last, int64(now)) {
		conn.ResetConnectBackoff()
	}
}

// expired is called when etcd says that the session has expired: its keys are gone.
func (s *session) expired() {
	if s.Expire() {
		s.b.set.log.Warn("etcdlock: the etcd lease has expired", "ttl", s.ttl())
	}
}

func (s *session) isReady() bool { return s.alive.Load() != nil && !s.Over() }

// await waits until the session is open. It returns an error as soon as a try has failed meanwhile.
func (s *session) await(ctx context.Context) error {
	return s.Answered(ctx, s.isReady, func(why, err error) error {
		if why == nil {
			return unreached(err)
		}
		return distributed.Unavailable("", why, distributed.ErrUnreached, err)
	})
}

// vouch waits until enough of the session's time is left to begin a lease: after a silence, or when this process was stopped,
// a keepalive has to be answered first.
func (s *session) vouch(ctx context.Context) error {
	for distributed.Left(time.Now(), s.Until()) < s.ttl()/vouchShare {
		if s.Over() {
			return errOver
		}
		s.Kick()
		parts.Pause(ctx, firstPause)
		if ctx.Err() != nil {
			return unanswered("keepalive", ctx.Err())
		}
	}
	return nil
}

// vouchShare of the TTL is what a new lease needs at least: a session that works has three times as much left.
const vouchShare = 4

// write changes a key of the session's own: an exchange that takes what a lock takes.
func (s *session) write(ctx context.Context, what string) error {
	_, err := s.txn(ctx, what, &pb.TxnRequest{Success: []*pb.RequestOp{opPut(s.writeKey(), "", s.lease())}})
	return err
}

package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
)

// session is one session of the ensemble, with its one connection: liveness, apart from the order that the nodes keep.
// Its time ends by our own clock (see proof), or when the server says that it has expired; then it is over for good, and
// a new session takes its place. The client library would go on with a new session by itself, and carry out there what was
// meant for the old one.
//
//	connecting ── handshake ──▶ up ── probe ──▶ ready ──▶ up and down, as the connection comes and goes
//	                                                 └── expired, or close ──▶ over
type session struct {
	*driver.Task[claim] // a kick says that the connection's state has changed

	b      *Backend
	conn   *zk.Conn
	link   *link
	events <-chan zk.Event

	mu      sync.Mutex
	up      bool                  // guarded by mu; there is a connection
	fresh   time.Time             // guarded by mu; when the latest handshake was sent, until the task takes it
	ready   bool                  // guarded by mu; probed
	why     error                 // guarded by mu; of the latest probe or sync, if it failed, or of a dial since, which wakes nobody
	watched map[string][]*claim   // guarded by mu; which are to look when something happens to a node
	armed   map[string]bool       // guarded by mu; paths that the library watches, or is asked to
	alive   atomic.Pointer[proof] // nil before the first handshake, which sets it
	downAt  atomic.Bool           // !up, for Healthy
}

const (
	// beatsPerTimeout is how many syncs go out per time-out, at least one each longestBeat: with a lag of a quarter, a sync is
	// proven by the third after it, and three fifths of the time-out are left at every moment of a session that works.
	beatsPerTimeout = 10
	longestBeat     = time.Second
	// silenceShare of the time-out, at most longestSilence, is how long a sync may be unanswered before the connection is
	// dropped and another server is tried: time for two more within the session.
	silenceShare   = 3
	longestSilence = 3 * time.Second
	// sendBuffer is enough for our largest packet, the library's setting of watches in parts of 128 KiB; receiveBuffer for what
	// a server sends by default (jute.maxbuffer). The library would take 1.5 MiB for each.
	sendBuffer, receiveBuffer = 192 << 10, 1 << 20
	// listBuffer is enough for the names of millions of keys. It grows with what is received.
	listBuffer = 128 << 20
)

func (b *Backend) newSession(t *driver.Task[claim]) (*session, error) {
	receive := receiveBuffer
	if t.Kind == lists {
		receive = listBuffer
	}
	s := &session{Task: t, b: b, link: newLink(), watched: map[string][]*claim{}, armed: map[string]bool{}}
	s.downAt.Store(true)
	s.link.secure = b.set.dial
	s.link.limit, s.link.armed, s.link.opened, s.link.failed = s.dialLimit, s.anyArmed, s.opened, s.dialFailed
	conn, events, err := zk.Connect(b.servers, t.TTL,
		zk.WithDialer(s.link.dial), zk.WithHostProvider(&hosts{link: s.link}), zk.WithEventCallback(s.event), zk.WithLogger(quiet{}),
		zk.WithLogInfo(false), zk.WithMaxConnBufferSize(sendBuffer), zk.WithMaxBufferSize(receive))
	if err != nil {
		return nil, fmt.Errorf("zklock: %w", err)
	}
	s.mu.Lock()
	s.conn, s.events = conn, events
	s.mu.Unlock()
	return s, nil
}

// quiet drops the library's log lines: our errors say the same.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// timeout is the one that the server has granted; before that the one we want.
func (s *session) timeout() time.Duration {
	if p := s.alive.Load(); p != nil {
		return p.timeout
	}
	return s.TTL
}

func (s *session) silence() time.Duration { return min(s.timeout()/silenceShare, longestSilence) }

// Patience implements driver.Session: it is how long an answer is waited for.
func (s *session) Patience() time.Duration { return cmp.Or(s.b.set.patience, s.silence()) }

// dialLimit bounds a dial and a handshake. The first one is not in a hurry: nothing is held yet.
func (s *session) dialLimit() time.Duration {
	if s.alive.Load() == nil {
		return max(s.silence(), firstDial)
	}
	return s.silence()
}

const firstDial = time.Second

// dialFailed reports that no server could be connected to: there is no request that could say so.
func (s *session) dialFailed(sent time.Time, err error, inARow int) {
	s.mu.Lock()
	if !errors.Is(s.why, distributed.ErrRefused) {
		s.why = unreached(err)
	}
	s.mu.Unlock()
	if inARow >= len(s.b.servers) {
		s.b.engine.Report(distributed.Exchange{Sent: sent, Err: unreached(err)})
	}
}

// Until implements driver.Session: the time up to which the session lives at least.
func (s *session) Until() time.Time { return *s.alive.Load().until.Load() }

// Healthy implements driver.Session: the connection is up and has not been silent for too long. It is asked at every turn.
func (s *session) Healthy(now time.Time) bool {
	p := s.alive.Load()
	return p != nil && !s.downAt.Load() && now.Sub(*p.last.Load()) < s.silence()+s.beat()
}

func (s *session) beat() time.Duration { return min(s.timeout()/beatsPerTimeout, longestBeat) }

// opened is called by the link when a handshake was answered. A majority has stored the session that the first one created. A
// server that grants less than the one before, because its configuration has changed, ends the session earlier than its leases
// promise: they are lost, and a new session learns the new time-out.
func (s *session) opened(sent time.Time, timeout time.Duration) {
	s.mu.Lock()
	s.fresh = sent
	s.mu.Unlock()
	s.alive.CompareAndSwap(nil, newProof(sent, timeout)) // if it is the first
	if timeout < s.timeout() {
		s.link.close()
		s.expired()
	}
}

// event is called by the library, for the connection and for watches. It must not block.
func (s *session) event(e zk.Event) {
	switch {
	case e.Type != zk.EventSession:
		s.fire(e)
	case e.State == zk.StateExpired:
		s.link.close() // first, or the library goes on with a session of its own
		s.expired()
	case e.State == zk.StateHasSession:
		s.setUp(true)
	case e.State == zk.StateDisconnected:
		s.setUp(false)
	}
}

func (s *session) setUp(up bool) {
	s.mu.Lock()
	s.up = up
	s.mu.Unlock()
	s.downAt.Store(!up)
	s.Changed()
	s.Kick()
}

// expired is called when the server says that the session has expired: its nodes are gone.
func (s *session) expired() {
	if s.Expire() {
		s.b.set.log.Warn("zklock: the session has ended", "timeout", s.timeout())
	}
}

// await waits until the session can be used.
func (s *session) await(ctx context.Context) error {
	return s.Await(ctx, s.usable, func(err error) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.why == nil {
			return unreached(err)
		}
		return distributed.Unavailable("", s.why, distributed.ErrUnreached, err)
	})
}

// usable reports that the session can be used, or why it will not be.
func (s *session) usable() (is bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if is = s.ready && s.up; !is && errors.Is(s.why, distributed.ErrRefused) {
		err = s.why
	}
	return is, err
}

// Fault implements driver.Session.
func (s *session) Fault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// watch has the attempt look, once, when something happens to the node. It is called before the request that sets the
// watch, so the event cannot be quicker. It reports false if the attempt's watch is set: the library would keep a channel for each.
func (s *session) watch(path string, c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.watched[path], c) {
		return false
	}
	s.watched[path] = append(s.watched[path], c)
	s.armed[path] = true
	return true
}

// watches reports that the attempt is to look when something happens to the node.
func (s *session) watches(path string, c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.watched[path], c)
}

// unwatch takes back a watch that was not set. If the node is gone, then so are all watches on it.
func (s *session) unwatch(path string, c *claim, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone {
		delete(s.armed, path)
	}
	rest := slices.DeleteFunc(s.watched[path], func(one *claim) bool { return one == c })
	if s.watched[path] = rest; len(rest) == 0 {
		delete(s.watched, path)
	}
}

func (s *session) anyArmed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.armed) > 0
}

func (s *session) fire(e zk.Event) {
	s.b.counts.events.Add(1)
	s.mu.Lock()
	watching := s.watched[e.Path]
	delete(s.watched, e.Path)
	delete(s.armed, e.Path)
	s.mu.Unlock()
	for _, c := range watching {
		c.event()
	}
}

// unwatchAll forgets who watches: all of them look now.
func (s *session) unwatchAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = map[string][]*claim{}
}

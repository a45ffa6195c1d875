package zklock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// Beat implements driver.Living: it probes a new session, and keeps the session alive with syncs.
func (s *session) Beat(kicked bool) (next time.Duration) {
	if kicked {
		s.reconnected()
	} else {
		s.keepAlive()
	}
	return s.beat() // the time-out may be known now
}

// reconnected is called when the connection has come or gone.
func (s *session) reconnected() {
	s.mu.Lock()
	up, ready, fresh, p := s.up, s.ready, s.fresh, s.alive.Load()
	s.fresh = time.Time{}
	s.mu.Unlock()
	if !up || p == nil {
		return
	}
	if !fresh.IsZero() {
		p.answered(fresh, time.Now())
	}
	if !ready {
		s.prepare()
		return
	}
	s.keepAlive()
	s.unwatchAll()
	for _, a := range s.Lane.Attempts() {
		a.Poke()
	}
	s.Lane.Retry()
}

// prepare makes a new session usable: it shows who we are and tries what a lock takes.
func (s *session) prepare() {
	err := s.authenticate()
	if err == nil {
		err = s.b.probe(s)
	}
	s.mu.Lock()
	s.ready, s.why = err == nil, err
	s.mu.Unlock()
	s.Changed()
}

func (s *session) authenticate() error {
	credentials, err := s.b.set.credentials()
	if err != nil || credentials == nil {
		return err
	}
	_, err = ask(s.Ctx, s, "authenticate", func() (struct{}, error) {
		return struct{}{}, s.conn.AddAuth("digest", credentials)
	}, nil)
	return err
}

// keepAlive sends a sync, which the leader answers, and notes that it was answered. A connection that is silent for too
// long is dropped: the library would wait for twice as long.
func (s *session) keepAlive() {
	s.mu.Lock()
	up, ready := s.up, s.ready
	s.mu.Unlock()
	if !up {
		return
	}
	if !ready {
		s.prepare() // refused before, or interrupted
		return
	}
	sent := time.Now()
	timer := time.AfterFunc(s.Patience(), s.link.drop)
	defer timer.Stop()
	err := s.sync(s.Ctx)
	s.mu.Lock()
	s.why = err
	s.mu.Unlock()
	if err == nil {
		s.alive.Load().answered(sent, time.Now())
		s.Lane.Retry() // what was refused
	}
}

// vouch waits until enough of the session's time is proven to begin a lease: after a silence of the server, or when this process
// was stopped, it takes two syncs.
func (s *session) vouch(ctx context.Context) error {
	for distributed.Left(time.Now(), s.Until()) < s.timeout()/vouchShare {
		if s.Over() {
			return errOver
		}
		pause(ctx)
		if ctx.Err() != nil {
			return unanswered("sync", ctx.Err())
		}
	}
	return nil
}

// vouchShare of the time-out is what a new lease needs at least: a session that works has twice as much left.
const vouchShare = 4

// sync has the server catch up with the leader.
func (s *session) sync(ctx context.Context) error {
	_, err := ask(ctx, s, "sync", func() (string, error) { return s.conn.Sync(s.b.rootPath()) }, nil)
	return err
}

// End implements driver.Living: at the server too, then its nodes are gone at once. Nodes of leases that are still held must
// stay until these have expired: then the connection is cut, and the server ends the session after its timeout.
func (s *session) End(held bool) {
	if held || s.Expired() {
		s.link.close()
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.conn.Close() // waits for the answer, a second at most
	}()
	timer := time.AfterFunc(closeGrace, s.link.close)
	defer timer.Stop()
	<-closed
	s.link.close()
	for range s.events { // closed when the library has ended
	}
}

// closeGrace bounds how long the end of a session is waited for.
const closeGrace = time.Second

// errLate says that a call is under way yet: its answer goes to late.
var errLate = keyless.Errorf("the caller had no more time")

// answer is what came of a call.
type answer[T any] struct {
	value T
	err   error
}

// ask runs a call of the library, which knows no contexts, and reports it to the observers. It returns when the call is answered,
// or ctx has ended: whichever is noted first wins. A call that is answered after that goes to late; nil: nothing is to be done
// then.
func ask[T any](ctx context.Context, s *session, what string, call func() (T, error), late func(T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, unanswered(what, err)
	}
	if !s.b.engine.Begin() {
		return none, distributed.ErrClosed
	}
	var decided atomic.Bool // the answer is the caller's, or late's
	answers := make(chan answer[T], 1)
	go func() {
		defer s.b.engine.Done()
		sent := time.Now()
		value, err := call()
		s.b.observe(sent, err)
		if decided.CompareAndSwap(false, true) {
			answers <- answer[T]{value, err}
		} else if late != nil {
			late(value, err)
		}
	}()
	select {
	case a := <-answers:
		return a.value, explain(what, a.err)
	case <-ctx.Done():
	}
	if decided.CompareAndSwap(false, true) {
		return none, unanswered(what, keyless.Errorf("%w: %w", errLate, ctx.Err()))
	}
	a := <-answers
	return a.value, explain(what, a.err)
}

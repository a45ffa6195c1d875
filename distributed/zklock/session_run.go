package zklock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

// run is the session's one task: it probes a new session, keeps the session alive with syncs, and closes it in the end.
func (s *session) run() {
	defer close(s.ended)
	ticker := time.NewTicker(s.beat())
	defer ticker.Stop()
	for {
		select {
		case <-s.wake:
			s.reconnected(ticker)
		case <-ticker.C:
			s.keepAlive()
		case <-s.ctx.Done():
			s.shut()
			return
		}
	}
}

// reconnected is called when the connection has come or gone.
func (s *session) reconnected(ticker *time.Ticker) {
	s.mu.Lock()
	up, ready, fresh, p := s.up, s.ready, s.fresh, s.p
	s.fresh = time.Time{}
	s.mu.Unlock()
	if !up || p == nil {
		return
	}
	if !fresh.IsZero() {
		p.answered(fresh, time.Now())
	}
	if !ready {
		ticker.Reset(s.beat()) // the time-out is known now
		s.prepare()
		return
	}
	s.keepAlive()
	s.unwatchAll()
	s.b.pokeAll(s)
	s.dead.drain()
}

// prepare makes a new session usable: it shows who we are and tries what a lock takes.
func (s *session) prepare() {
	err := s.authenticate()
	if err == nil {
		err = s.b.probe(s)
	}
	s.mu.Lock()
	s.ready, s.why = err == nil, err
	s.changed()
	s.mu.Unlock()
}

func (s *session) authenticate() error {
	credentials, err := s.b.set.credentials()
	if err != nil || credentials == nil {
		return err
	}
	_, err = ask(s.ctx, s, "authenticate", func() (struct{}, error) {
		return struct{}{}, s.conn.AddAuth("digest", credentials)
	}, nil)
	return err
}

// keepAlive sends a sync, which the leader answers, and notes that it was answered. A connection that is silent for too
// long is dropped: the library would wait for twice as long.
func (s *session) keepAlive() {
	s.mu.Lock()
	up, ready, p := s.up, s.ready, s.p
	s.mu.Unlock()
	if !up {
		return
	}
	if !ready {
		s.prepare() // refused before, or interrupted
		return
	}
	sent := time.Now()
	timer := time.AfterFunc(s.patience(), s.link.drop)
	defer timer.Stop()
	if err := s.sync(s.ctx); err == nil {
		p.answered(sent, time.Now())
		s.dead.drain() // what was refused
	}
}

// vouch waits until enough of the session's time is proven to begin a lease: after a silence of the server, or when this process
// was stopped, it takes two syncs.
func (s *session) vouch(ctx context.Context) error {
	for distributed.Left(time.Now(), s.until()) < s.timeout()/vouchShare {
		if s.isOver() {
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

// reply waits for the answer to what goes on in the background.
func (s *session) reply(ctx context.Context, what string, answers <-chan error) error {
	timer := time.NewTimer(s.patience())
	defer timer.Stop()
	select {
	case err := <-answers:
		return err
	case <-timer.C:
		return unanswered(what, errSilent)
	case <-ctx.Done():
		return unanswered(what, ctx.Err())
	}
}

// stop ends the session: its task closes it.
func (s *session) stop() { s.cancel() }

// shut closes the session, at the server too: then its nodes are gone at once. Nodes of leases that are still held must
// stay until these have expired: then the connection is cut, and the server ends the session after its time-out.
func (s *session) shut() {
	if s.isOver() || s.b.holds(s) {
		s.link.close()
	}
	s.finish()
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
	s.dead.abort(errOver)
}

// closeGrace bounds how long the end of a session is waited for.
const closeGrace = time.Second

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
	if !s.b.begin() {
		return none, distributed.ErrClosed
	}
	var decided atomic.Bool // the answer is the caller's, or late's
	answers := make(chan answer[T], 1)
	go func() {
		defer s.b.tasks.Done()
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
		return none, unanswered(what, ctx.Err())
	}
	a := <-answers
	return a.value, explain(what, a.err)
}

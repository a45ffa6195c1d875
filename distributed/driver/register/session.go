package register

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
)

// session vouches for the leases of one TTL at one server that this process has held for a while: one document has a beat for all of them,
// and their claims name it. A lease gets its own first beat, so one that is short has none. The last lease to end takes the document along.
//
// Another process that has seen the beat stand still for T deletes the document, and takes out the claims then. The document is made before a claim
// names it, so one that is absent vouches for none. A beat that comes later than the end finds another version, or a late copy of the first
// beat. That beats no more.
type session struct {
	key  string // of its document
	ttl  time.Duration
	at   *server
	uses int // leases whose claims may name it; guarded by Backend.mu

	turn    chan struct{} // capacity 1; guards all below
	version Version       // "": not known, as after a Put that was not answered
	beats   int
	beaten  time.Time // when the beat was sent that was answered last. Zero: none was
	over    bool
}

// beat is the document of a session.
type beat struct {
	Session time.Duration `json:"session"` // its TTL
	Beat    int           `json:"beat"`
	Over    bool          `json:"over,omitempty"` // the Store cannot delete it
}

// sessions are in no lock's way: a key of a caller begins with the name of a system.
const sessionKeys = "wllock-session:"

// join gives a lease a session.
func (b *Backend) join(a *attempt) *session {
	s := b.sessionFor(a.Wire.at, a.TTL)
	a.Wire.session.Store(s)
	if a.Wire.ended.Load() { // meanwhile
		b.part(a, s)
	}
	return s
}

// sessionFor returns the session of a TTL, for one lease more.
func (b *Backend) sessionFor(at *server, ttl time.Duration) *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := at.sessions[ttl]
	if s == nil {
		s = &session{key: sessionKeys + b.newID(), ttl: ttl, at: at, turn: make(chan struct{}, 1)}
		for spread, ok := b.store.(Spread); ok && spread.Server(s.key) != at.name; {
			s.key = sessionKeys + b.newID()
		}
		at.sessions[ttl] = s
	}
	s.uses++
	return s
}

// part takes it from the lease: no claim of that names it, or the session has ended.
func (b *Backend) part(a *attempt, s *session) {
	if !a.Wire.session.CompareAndSwap(s, nil) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.uses--; s.uses > 0 {
		return
	}
	b.leave(s)
	b.client.Go(func() {
		s.turn <- struct{}{}
		defer func() { <-s.turn }()
		ctx := context.Background() // Close waits
		for tries := 1; !s.beaten.IsZero() && tries <= atOnce; tries++ {
			if s.version == "" && b.found(ctx, s) != nil {
				continue
			}
			if s.version == "" || b.finish(ctx, s.key, s.version, s.ttl) == nil {
				break
			}
			s.version = ""
		}
		s.over = true
	})
}

// settle parts a lease that has ended when its claim has been removed. A Window after it has expired no Drop is
// under way, and it removes the claim itself, until that is answered: else the session would vouch for it.
func (d half) settle(a *attempt, s *session) {
	for tries := 1; !a.Wire.dropped.Load() && pause(d.ctx, d.pauseAfter(tries)); tries++ {
		if l := a.Lease(); l == nil || distributed.Over(time.Now().Add(-a.Window), l.Until()) {
			a.Wire.at.expired <- struct{}{}
			found, err := d.remove(d.ctx, a, false)
			<-a.Wire.at.expired
			if err == nil {
				a.Wire.dropped.Store(found)
				break
			}
		}
	}
	d.part(a, s)
}

// leave has no other lease join a session. The caller holds mu.
func (b *Backend) leave(s *session) {
	if s.at.sessions[s.ttl] == s {
		delete(s.at.sessions, s.ttl)
	}
}

// vouch has a session's beat count on, unless it did so lately, and returns when the beat was sent that was answered last. ErrLeaseLost: the session is over.
func (b *Backend) vouch(ctx context.Context, s *session) (time.Time, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return time.Time{}, distributed.Unavailable(b.name, ctx.Err(), distributed.ErrUnreached)
	}
	defer func() { <-s.turn }()
	for tries := 1; ; tries++ {
		if !s.over && time.Since(s.beaten) <= s.ttl/beatShare {
			return s.beaten, nil
		}
		if !s.over && s.version == "" && s.beats > 0 {
			if err := b.found(ctx, s); err != nil {
				return time.Time{}, err
			}
		}
		if s.over || s.beats > 0 && time.Since(s.beaten) > s.ttl { // then it may have been ended, and what was found be a late copy of its first beat
			s.over = true
			b.mu.Lock()
			b.leave(s)
			b.mu.Unlock()
			return time.Time{}, distributed.ErrLeaseLost
		}
		data, _ := json.Marshal(beat{Session: s.ttl, Beat: s.beats + 1}) // numbers
		sent := time.Now()
		v, err := b.store.Put(ctx, s.key, data, s.version, sessionMemory)
		switch err = b.exchanged(sent, err); {
		case err == nil:
			s.version, s.beaten = v, sent
			s.beats++
		case errors.Is(err, ErrConflict) && s.beats > 0 && tries < atOnce: // it has ended, or an earlier beat came late
			s.version = ""
		case errors.Is(err, ErrConflict), s.beats == 0 && unanswered(err): // it may come late, so none begins with it
			s.over = true
		default:
			if unanswered(err) {
				s.version = ""
			}
			return time.Time{}, err
		}
	}
}

// found reads the version of a session's document. The caller has the turn.
func (b *Backend) found(ctx context.Context, s *session) error {
	sent := time.Now()
	d, err := b.store.Get(ctx, s.key)
	if err = b.exchanged(sent, err); err == nil {
		if s.version = d.Version; ended(d) {
			s.version, s.over = "", true
		}
	}
	return err
}

// ended reports that a session has.
func ended(d Document) bool {
	var b beat
	return d.Version == "" || json.Unmarshal(d.Data, &b) == nil && b.Over
}

// finish ends a session whose document has this version.
func (b *Backend) finish(ctx context.Context, key string, from Version, ttl time.Duration) (err error) {
	sent := time.Now()
	if b.deleter != nil {
		err = b.deleter.Delete(ctx, key, from)
	} else {
		data, _ := json.Marshal(beat{Session: ttl, Over: true})
		_, err = b.store.Put(ctx, key, data, from, sessionMemory)
	}
	return b.exchanged(sent, err)
}

// sessionMemory is how long the documents are kept that a session vouches for, and its own, after they were written. So they are written
// again before half of it has passed.
const sessionMemory = fenceMemory

// vigil is what this process knows of another's session.
type vigil struct {
	version Version
	since   time.Time // when that version was read first: after the reply
	asked   time.Time // when it was read last
	over    bool
}

// watchOver returns what is known of the session of a claim. It asks at most every half H, and ends a session whose beat has stood still for T.
func (b *Backend) watchOver(ctx context.Context, c claim) vigil {
	b.mu.Lock()
	v := b.vigils[c.Session]
	b.mu.Unlock()
	if overdue := v.version != "" && time.Since(v.since) > c.TTL; v.over || !overdue && time.Since(v.asked) < distributed.HeartbeatInterval(c.TTL)/2 {
		return v
	}
	v.asked = time.Now()
	d, err := b.store.Get(ctx, c.Session)
	switch now := time.Now(); {
	case b.exchanged(v.asked, err) != nil:
	case ended(d):
		v.over = true
	case d.Version != v.version:
		v.version, v.since = d.Version, now
	case now.Sub(v.since) > c.TTL:
		v.over = b.finish(ctx, c.Session, d.Version, c.TTL) == nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for other := range b.vigils {
		if len(b.vigils) < mostRemembered {
			break
		}
		delete(b.vigils, other) // any: it is watched anew
	}
	b.vigils[c.Session] = v
	return v
}

package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// life is a session whose service is a script.
type life struct {
	*Task[simWire]
	began time.Time

	mu    sync.Mutex // guards all below
	beats []beatOf
	next  time.Duration
	down  bool // its Beat is not answered
	sick  bool
	ended []bool // what End was told
}

// beatOf is a call of Beat.
type beatOf struct {
	at     time.Duration
	kicked bool
}

func (l *life) Beat(kicked bool) time.Duration {
	began := beatOf{time.Since(l.began), kicked}
	time.Sleep(time.Millisecond) // an exchange
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beats = append(l.beats, began)
	if l.down {
		l.Tried(errors.New("no answer"))
	} else {
		l.Tried(nil)
	}
	return l.next
}

func (l *life) End(held bool) { l.with(func() { l.ended = append(l.ended, held) }) }

func (l *life) Healthy(time.Time) (is bool) {
	l.with(func() { is = !l.sick })
	return is
}

func (l *life) Until() time.Time        { return time.Now().Add(time.Hour) }
func (l *life) Patience() time.Duration { return time.Second }

func (l *life) with(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *life) saw() (beats []beatOf) {
	l.with(func() { beats = slices.Clone(l.beats) })
	return beats
}

func (l *life) ends() (told []bool) {
	l.with(func() { told = slices.Clone(l.ended) })
	return told
}

// kept runs a test of Sessions, whose Beats are a second apart.
func kept(t *testing.T, rules SessionRules, f func(t *testing.T, c *simClient, p *Sessions[simWire, *life])) {
	quiet(t, func(t *testing.T, c *simClient, _ func(string) (distributed.Lease, distributed.Place)) {
		p := NewSessions(c.b, rules, func(t *Task[simWire]) (*life, error) {
			return &life{Task: t, began: time.Now(), next: time.Second}, nil
		})
		defer p.Close()
		f(t, c, p)
	})
}

func find(t *testing.T, p *Sessions[simWire, *life], kind string, ttl int) *life {
	t.Helper()
	s, err := p.Find(Class{kind, time.Duration(ttl) * time.Second})
	require.NoError(t, err)
	return s
}

// use has an attempt of the session until done is called.
func use(t *testing.T, c *simClient, s *life) (done func()) {
	t.Helper()
	a := c.b.newAttempt(distributed.Request{Key: "k", Instance: "a", TTL: s.TTL})
	a.Lane = s.Lane
	require.NoError(t, s.Lane.add(a))
	return func() {
		s.Lane.asked()
		s.Lane.forget(a)
	}
}

// One session serves all of a class, also those that ask at once. There are not too many, and none is longer than the TTL that it serves.
func TestSessionsAreSharedAndFew(t *testing.T) {
	kept(t, SessionRules{}, func(t *testing.T, c *simClient, p *Sessions[simWire, *life]) {
		got := make(chan *life)
		for range 20 {
			go func() { got <- find(t, p, "", 10) }()
		}
		first := <-got
		for range 19 {
			require.Same(t, first, <-got)
		}
		for ttl := 11; ttl < 40; ttl++ {
			require.LessOrEqual(t, find(t, p, "", ttl).TTL, time.Duration(ttl)*time.Second)
		}
		require.Len(t, p.All(), MaxSessions)
		require.Equal(t, 17*time.Second, find(t, p, "", 39).TTL, "the longest below it")
		require.NotSame(t, first, find(t, p, "another", 10))
		require.Len(t, p.All(), MaxSessions+1, "of each kind")
	})
}

// A TTL below all others ends a session that nobody uses, but for the oldest, which questions use: they lose nothing. One that is used
// stays.
func TestSessionsThatNobodyUsesMakeRoom(t *testing.T) {
	kept(t, SessionRules{}, func(t *testing.T, c *simClient, p *Sessions[simWire, *life]) {
		first := find(t, p, "", 99)
		used := find(t, p, "", 98)
		done := use(t, c, used)
		for ttl := 97; ttl > 50; ttl-- {
			find(t, p, "", ttl)
			require.LessOrEqual(t, len(p.All()), MaxSessions)
		}
		require.False(t, first.Over() || used.Over())
		again, err := p.Any(Class{})
		require.NoError(t, err)
		require.Same(t, first, again)
		var ends []func()
		for ttl := 50; ttl > 30; ttl-- {
			ends = append(ends, use(t, c, find(t, p, "", ttl)))
		}
		require.Len(t, p.All(), 22, "as many as are used")
		done()
		find(t, p, "", 29)
		time.Sleep(time.Second)
		require.Equal(t, []bool{false}, used.ends())
		for _, end := range ends {
			end()
		}
	})
}

// The one with the longest TTL makes room: those that stay can serve more.
func TestTheLongestSessionMakesRoom(t *testing.T) {
	kept(t, SessionRules{}, func(t *testing.T, c *simClient, p *Sessions[simWire, *life]) {
		for ttl := 10; ttl < 10+MaxSessions; ttl++ {
			find(t, p, "", ttl)
		}
		find(t, p, "", 5)
		var left []time.Duration
		for _, s := range p.All() {
			left = append(left, s.TTL/time.Second)
		}
		require.Equal(t, []time.Duration{10, 11, 12, 13, 14, 15, 16, 5}, left)
	})
}

// With shorter sessions for those that come late there are never more.
func TestSessionsOfShorterTTLs(t *testing.T) {
	less := func(ttl time.Duration, there int) time.Duration {
		if there >= MaxSessions-1 {
			return time.Second
		}
		return ttl / 2
	}
	kept(t, SessionRules{Own: 4, Less: less}, func(t *testing.T, c *simClient, p *Sessions[simWire, *life]) {
		for ttl := 99; ttl > 0; ttl-- {
			s := find(t, p, "", ttl)
			require.LessOrEqual(t, s.TTL, time.Duration(ttl)*time.Second)
			defer use(t, c, s)()
		}
		require.Len(t, p.All(), MaxSessions)
		require.Equal(t, 96*time.Second, p.All()[3].TTL)
		require.Equal(t, 95*time.Second/2, p.All()[4].TTL)
		require.Equal(t, time.Second, p.All()[7].TTL)
	})
}

// The Backend asks for another session when the one that it has found ends before the request.
func TestSessionThatEndsBeforeItsRequest(t *testing.T) {
	quiet(t, func(t *testing.T, c *simClient, enter func(string) (distributed.Lease, distributed.Place)) {
		l, _ := enter("k")
		first := c.sessions.All()[0]
		require.NoError(t, l.Release(t.Context()))
		require.True(t, first.Lane.shutUnused())
		go func() { // as the task would
			time.Sleep(time.Millisecond)
			c.sessions.forget(first.Task)
			first.cancel()
		}()
		_, err := c.sessions.Find(Class{TTL: c.ttl})
		require.NoError(t, err)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		l, _ = enter("k")
		require.NotSame(t, first, c.sessions.All()[0])
		require.NoError(t, l.Release(t.Context()))
	})
}

// A session that has expired takes its leases and places with it, once, and the next request opens another. Who waits for it is told.
func TestSessionThatExpires(t *testing.T) {
	quiet(t, func(t *testing.T, c *simClient, enter func(string) (distributed.Lease, distributed.Place)) {
		l, _ := enter("k")
		_, p := enter("k")
		s := c.sessions.All()[0]
		told := make(chan error, 1)
		go func() {
			told <- s.Await(t.Context(), func() (bool, error) { return false, nil }, func(err error) error { return err })
		}()
		synctest.Wait()
		c.v.do(func() { delete(c.v.sessions, s.id) })
		time.Sleep(dropTTL / 5)
		<-l.Lost()
		synctest.Wait()
		select {
		case _, granted := <-p.Granted():
			require.False(t, granted)
		default:
			require.Fail(t, "the place is not told of the end")
		}
		require.True(t, s.Expired())
		require.False(t, s.Expire())
		require.ErrorIs(t, <-told, ErrOver)
		require.Empty(t, c.sessions.All())
		c.v.do(func() { c.v.remove(c.v.known[AttemptOf[simWire](l).Wire.entry.id]) })
		enter("k")
		require.NotSame(t, s, c.sessions.All()[0])
	})
}

// Who waits for a session is answered by its next Beat, and by none before. A Beat that is answered wins against the end of ctx, and so
// does ctx against one that comes later.
func TestSessionThatIsWaitedFor(t *testing.T) {
	kept(t, SessionRules{}, func(t *testing.T, _ *simClient, p *Sessions[simWire, *life]) {
		s := find(t, p, "", 10)
		s.with(func() { s.next = Never })
		synctest.Wait()
		time.Sleep(time.Minute)
		require.Equal(t, []beatOf{{0, false}}, s.saw(), "nobody waits")
		late := func(why, err error) error { return fmt.Errorf("late: %v: %w", why, err) }
		never := func() bool { return false }
		s.with(func() { s.down = true })
		require.EqualError(t, s.Answered(t.Context(), never, late), "no answer")
		require.Equal(t, []beatOf{{0, false}, {time.Minute, true}}, s.saw())
		s.with(func() { s.down = false })
		require.NoError(t, s.Answered(t.Context(), func() bool { return len(s.saw()) > 2 }, late), "the failure is an old one")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.ErrorIs(t, s.Answered(ctx, never, late), context.DeadlineExceeded)
		require.NoError(t, s.Answered(ctx, func() bool { return true }, late))
	})
}

// Beats come at their time, and at once after a kick.
func TestSessionBeats(t *testing.T) {
	kept(t, SessionRules{}, func(t *testing.T, _ *simClient, p *Sessions[simWire, *life]) {
		s := find(t, p, "", 10)
		time.Sleep(1500 * time.Millisecond)
		s.Kick()
		time.Sleep(1200 * time.Millisecond)
		require.Equal(t, []beatOf{{0, false}, {time.Second, false}, {1500 * time.Millisecond, true}, {2500 * time.Millisecond, false}}, s.saw())
	})
}

// Close waits for what is being dropped, as long as that may be answered, and for a while; then it ends all sessions.
func TestSessionsAreClosed(t *testing.T) {
	for _, of := range []struct {
		what    string
		sick    bool
		dropped time.Duration // until what is being dropped is answered
		takes   time.Duration
	}{
		{what: "nothing to drop"},
		{what: "answered", dropped: time.Second / 2, takes: time.Second / 2},
		{what: "not answered", dropped: time.Hour, takes: closeGrace},
		{what: "silent", dropped: time.Hour, sick: true},
	} {
		t.Run(of.what, func(t *testing.T) {
			kept(t, SessionRules{}, func(t *testing.T, c *simClient, p *Sessions[simWire, *life]) {
				s, other := find(t, p, "", 10), find(t, p, "", 20)
				time.Sleep(time.Second / 10) // they are open
				s.with(func() { s.sick = of.sick })
				if of.dropped > 0 {
					s.Lane.mu.Lock()
					s.Lane.workers++
					s.Lane.mu.Unlock()
					time.AfterFunc(of.dropped, func() {
						s.Lane.mu.Lock()
						defer s.Lane.mu.Unlock()
						s.Lane.stops()
					})
				}
				start := time.Now()
				p.Close()
				require.Equal(t, of.takes, time.Since(start))
				require.Equal(t, []bool{false}, s.ends())
				require.Equal(t, []bool{false}, other.ends())
				_, err := p.Find(Class{TTL: time.Second})
				require.ErrorIs(t, err, distributed.ErrClosed)
				_, err = p.Any(Class{})
				require.ErrorIs(t, err, distributed.ErrClosed)
				require.False(t, s.Expire(), "it was closed")
			})
		})
	}
}

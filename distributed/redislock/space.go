package redislock

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/internal/conn"
)

// space is a system's part of the server, as this process knows it: its helper keys, and the channel on which this process hears of
// its locks. Users of other systems have no right to it, and nothing that is learned here counts elsewhere (rule R19).
type space struct {
	system string
	proven atomic.Bool   // a probe has tried the rights to it
	seen   atomic.Uint64 // the largest fence of its locks that was reserved here

	opened time.Time     // when this process began to listen to its channel
	known  chan struct{} // closed at the first outcome of that, and never replaced
	mu     sync.Mutex
	err    error // guarded by mu; why the channel is not heard
	told   bool  // guarded by mu; that it was refused is logged
}

// outcome notes whether the channel is heard. It reports whether a refusal is news.
func (e *space) outcome(err error) (news bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err = err
	refused := conn.Classify(err) == conn.Permanent
	news, e.told = refused && !e.told, refused
	select {
	case <-e.known:
	default:
		close(e.known)
	}
	return news
}

// allowed waits for the first outcome, not for long, and returns its error if the server has refused the channel. A subscription that
// merely broke comes back by itself.
func (e *space) allowed(ctx context.Context) error {
	t := time.NewTimer(time.Until(e.opened.Add(subscribeWait)))
	defer t.Stop()
	select {
	case <-e.known:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if conn.Classify(e.err) == conn.Permanent {
		return e.err
	}
	return nil
}

// see notes that fences up to this one were reserved here.
func (e *space) see(fence uint64) {
	for {
		old := e.seen.Load()
		if fence <= old || e.seen.CompareAndSwap(old, fence) {
			return
		}
	}
}

// mostSpaces bounds the systems whose messages a process hears. With WithKey what stands before the first colon may be text of
// clients; the locks of further systems are served by heartbeats.
const mostSpaces = 1000

// spaces are those that a process knows. Each lock looks for its own, so they are read without a mutex.
type spaces struct {
	channels *conn.Channels // on which this process hears; nil: it does not

	mu   sync.Mutex
	all  atomic.Pointer[map[string]*space] // written under mu, by a copy; what is in the map stays
	rest space                             // of all systems beyond mostSpaces: no probe, no channel
}

// space returns that of a key.
func (s *sender) space(key string) *space { return s.spaces.of(conn.SystemOf(key), s.process) }

// of returns the space of a system, which the process with this id hears of from now on.
func (s *spaces) of(system, process string) *space {
	if e := s.known(system); e != nil {
		return e
	}
	return s.add(system, process)
}

// known returns the space of a system; nil: there is none yet.
func (s *spaces) known(system string) *space {
	if all := s.all.Load(); all != nil {
		return (*all)[system]
	}
	return nil
}

func (s *spaces) add(system, process string) *space {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.known(system); e != nil {
		return e
	}
	more := make(map[string]*space)
	if all := s.all.Load(); all != nil {
		maps.Copy(more, *all)
	}
	if len(more) >= mostSpaces {
		s.rest.proven.Store(true)
		return &s.rest
	}
	system = strings.Clone(system) // it is a part of a key
	e := &space{system: system, opened: time.Now(), known: make(chan struct{})}
	more[system] = e
	s.all.Store(&more)
	if s.channels != nil {
		s.channels.Add(channelOf(system, process))
	}
	return e
}

// list returns those that there are.
func (s *spaces) list() (all []*space) {
	if known := s.all.Load(); known != nil {
		all = slices.Collect(maps.Values(*known))
	}
	return all
}

// channelOf is where a process hears of the locks of a system.
func channelOf(system, process string) string { return conn.SpaceOf(system) + process }

// spaceOf starts the helper keys and the channel of this key, helper key or channel.
func spaceOf(name string) string { return conn.SpaceOf(systemOfStart(name)) }

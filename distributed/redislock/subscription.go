package redislock

import (
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
)

// subscribeWait is how long a probe waits to learn whether the subscription is allowed. Without an outcome by then the backend works on,
// by heartbeats.
const subscribeWait = 500 * time.Millisecond

// subscription is the one of a Backend, for all its keys and instances: a channel for each system, over one connection. Messages can be
// lost, doubled and overtake each other. None is needed: they only make things quick.
type subscription struct {
	b    *Backend
	s    *session
	pace conn.Pace // rule R10

	once sync.Once // starts listening
	wg   sync.WaitGroup

	losses conn.LossLog
}

func newSubscription(b *Backend) *subscription { return &subscription{b: b, s: b.s} }

// open starts to listen, the first time.
func (u *subscription) open() {
	u.once.Do(func() {
		tr := u.s.tr
		u.wg.Go(func() { tr.ListenTo(u.s.ctx, u.s.spaces.channels, u.pace.Interval, u) })
	})
}

// close waits for the end of listening, which the end of the session's context brings about.
func (u *subscription) close() {
	u.once.Do(func() {}) // never opened: it stays so
	u.wg.Wait()
}

// OnSubscribe implements conn.ChannelListener. Earlier messages may be lost, so every place of the system sends a heartbeat (rule R10).
// That a lease is wanted is told once: one that was there before counts as wanted.
func (u *subscription) OnSubscribe(channel string) {
	e := u.s.spaces.known(conn.SystemIn(channel))
	e.outcome(nil)
	if u.losses.Back() {
		u.s.log.Info("redislock: subscription is back")
	}
	all := u.b.nodes.attempts()
	for _, a := range all {
		if a.Wire.space != e {
			continue
		}
		if a.Waiting() {
			a.LookIn(conn.SyncPause(len(all), a.TTL))
		} else if a.Held() {
			a.Wanted()
		}
	}
}

// OnRefused implements conn.ChannelListener.
func (u *subscription) OnRefused(channel string, err error) {
	if e := u.s.spaces.known(conn.SystemIn(channel)); e.outcome(err) {
		u.s.log.Warn("redislock: subscription refused, places are served by heartbeats", "system", e.system, "error", err)
	}
}

// OnDisconnect implements conn.ChannelListener.
func (u *subscription) OnDisconnect(err error) {
	if u.s.ctx.Err() != nil {
		return
	}
	for _, e := range u.s.spaces.list() {
		e.outcome(err)
	}
	if u.losses.Lost() {
		u.s.log.Warn("redislock: subscription lost, places are served by heartbeats", "error", err)
	}
}

// Expects implements conn.ChannelListener (rule R10).
func (u *subscription) Expects() (channel, key string) {
	for _, a := range u.b.nodes.some(fewExpecting) {
		if a.Waiting() || a.Held() {
			return channelOf(conn.SystemOf(a.Key), u.s.process), a.Key
		}
	}
	return "", ""
}

// fewExpecting attempts are looked at, of each server, for one that expects messages. Among as many there hardly is none.
const fewExpecting = 16

// OnMessage implements conn.ChannelListener. A message is believed as far as its sender may be entitled to send it: who may publish to the
// channel of a system may grant its locks, and no others (rule R19). The words of any other sender at most make us ask the server.
func (u *subscription) OnMessage(channel, text string) {
	m, ok := readMessage(text)
	if !ok {
		return
	}
	a, system := u.b.nodes.find(m.attempt), conn.SystemIn(channel)
	switch {
	case a != nil && conn.SystemOf(a.Key) != system:
	case m.kind == grantMessage && a == nil:
		if conn.SystemOf(m.key) == system {
			u.giveBack(m)
		}
	case a == nil:
	case m.kind == grantMessage:
		u.grant(a, m)
	case m.kind == contendedMessage, m.kind == uncontendedMessage:
		a.Noticed(m.kind == contendedMessage)
	case m.kind == refusedMessage:
		a.Wanted()
	case m.kind == lostMessage:
		if l := a.Lease(); l != nil {
			l.RenewBy(time.Now()) // no message is believed (rule R17)
		}
	case m.kind == checkMessage:
		sooner(a, m.delay)
	}
}

// sooner has a place send a heartbeat because of a message: a place that waits for longer would be lost.
func sooner(a *attempt, d time.Duration) { a.LookSooner(min(d, distributed.HeartbeatInterval(a.TTL))) }

// grant delivers the lock to the attempt that waits for it. One that cannot be the server's, or may be old, has the server asked.
func (u *subscription) grant(a *attempt, m message) {
	switch {
	case m.key != a.Key || m.mode != a.Mode || !a.Wire.isOf(m.instance):
	case !m.grant.plausible(a.Wire.after.Load(), time.Now()):
		sooner(a, 0)
	case a.Wire.tried.Load() && a.Waiting(): // it may be of its place before
		sooner(a, 0)
	default:
		s := u.b.granted(a, m.grant)
		s.Pushed = true
		a.Stands(s)
	}
}

// giveBack returns a grant that nobody waits for any more (rule R4).
func (u *subscription) giveBack(m message) {
	a := u.b.client.Orphan(m.attempt.Number, distributed.Request{Key: m.key, Mode: m.mode, TTL: conn.OrphanTTL})
	u.b.identify(a, u.b.s.process, m.attempt, m.instance)
	a.Discard()
}

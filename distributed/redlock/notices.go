package redlock

import (
	"errors"
	"log/slog"
	"time"

	"github.com/wllock/wllock/internal/conn"
)

// listen starts the subscriptions, the first time: one per server, for all keys and instances, with a channel for each system. None of
// their messages is needed: they only make things quick.
func (b *Backend) listen() {
	b.once.Do(func() {
		for _, n := range b.nodes {
			b.listens.Go(func() { n.tr.ListenTo(b.shut, n.channels, b.pace.Interval, n) })
		}
	})
}

// OnSubscribe implements conn.ChannelListener. Earlier messages may be lost, so every place of the system sends a heartbeat, and every
// lease is renewed, whose answer says whether others wait.
func (n *node) OnSubscribe(channel string) {
	in := n.b.space(conn.SystemIn(channel))
	in.deaf.And(^(uint64(1) << n.index))
	if n.losses.Back() {
		n.b.log.Info("redlock: subscription is back", "server", n.name)
	}
	all := n.b.lane.Attempts()
	for _, a := range all {
		pause := conn.SyncPause(len(all), a.TTL)
		if a.Wire.bid.Load().in != in {
			continue
		}
		a.LookSooner(pause)
		if a.Held() {
			a.Lease().RenewBy(time.Now().Add(pause))
		}
	}
}

// OnRefused implements conn.ChannelListener.
func (n *node) OnRefused(channel string, err error) {
	if in := n.b.space(conn.SystemIn(channel)); in.deaf.Or(1<<n.index)&(1<<n.index) == 0 {
		n.b.log.Warn("redlock: subscription refused, places are served by heartbeats", "server", n.name, "system", in.system, "error", err)
	}
}

// OnDisconnect implements conn.ChannelListener. A server that is away is logged by its node.
func (n *node) OnDisconnect(err error) {
	if n.b.shut.Err() != nil {
		return
	}
	level := slog.LevelDebug
	if errors.Is(err, conn.ErrAstray) && n.losses.Lost() {
		level = slog.LevelWarn
	}
	n.b.log.Log(n.b.shut, level, "redlock: subscription lost, places are served by heartbeats", "server", n.name, "error", err)
}

// Expects implements conn.ChannelListener (rule Q12).
func (n *node) Expects() (channel, key string) {
	for _, a := range n.b.lane.Some(fewExpecting) {
		if a.Waiting() || a.Held() {
			return prefixOf(conn.SystemOf(a.Key)) + n.b.process, a.Key
		}
	}
	return "", ""
}

// fewExpecting attempts are looked at for one that expects messages. Among as many there hardly is none.
const fewExpecting = 16

// OnMessage implements conn.ChannelListener. A message is believed as far as its sender may be entitled to send it: who may publish to the
// channel of a system may vote for its attempts, and no others (rule Q11). It ends no lease, and puts no heartbeat off.
func (n *node) OnMessage(channel, text string) {
	m, ok := readMessage(text)
	if !ok {
		return
	}
	_, process, ok := age(m.token)
	if !ok || process != n.b.process || conn.SystemOf(m.key) != conn.SystemIn(channel) {
		return
	}
	found, ok := n.b.bids.Load(m.token)
	a, _ := found.(*bid)
	switch {
	case !ok && m.kind == "vote":
		n.b.stray(m.token, m.key).leave(n)
	case !ok, a.key() != m.key:
	case m.kind == "vote":
		a.noticed(n, m)
	case m.kind == "gone":
		if a.a.Held() {
			a.extend() // no notice is believed (rule Q10)
		}
	case m.kind == "idle", m.instance != a.instance:
		a.wanted(n.index, m.kind == "want")
	}
}

var _ conn.ChannelListener = (*node)(nil)

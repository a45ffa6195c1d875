package redlock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/wllock/wllock/distributed"
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
	a := n.b.tokens.find(m.token)
	switch {
	case a == nil && m.kind == "vote":
		n.b.stray(m.token, m.key).leave(n)
	case a == nil, a.key() != m.key:
	case m.kind == "vote":
		a.noticed(n, m)
	case m.kind == "gone":
		if a.a.Held() {
			a.extend() // no notice is believed (rule Q10)
		}
	case m.kind == "idle", m.instance != a.instance:
		a.contended(n.index, m.kind == "want", time.Time{})
	}
}

// contended notes what one server says about others that wait: by a notice (sent is zero), or by the answer to a renewal that was sent then,
// which may be older than a notice. What a notice says before its lease is there is kept for that.
func (a *bid) contended(index int, waits bool, sent time.Time) {
	a.mu.Lock()
	s := &a.seats[index]
	if sent.IsZero() {
		s.contention(waits, time.Now())
	}
	has := a.phase == won
	if has {
		include(&a.contends, index, waits || s.wanted.After(sent))
	}
	a.mu.Unlock()
	for tell := has; tell; { // of several at once each looks again after it has told, so what is told last is so
		waits := a.waited()
		a.a.Noticed(waits)
		tell = a.waited() != waits
	}
}

// waited reports that others wait, on one server at least: it may be the first to hear of a waiter.
func (a *bid) waited() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.contends != 0
}

var _ conn.ChannelListener = (*node)(nil)

// all asks every server a question like k and waits for a majority of answers; it returns the replies, "" of those that failed or are late.
func (b *Backend) all(ctx context.Context, what string, limit time.Duration, k ask) ([]string, error) {
	if b.client.Closed() {
		return nil, distributed.ErrClosed
	}
	if err := b.twinned(); err != nil {
		return nil, b.unavailable(what, err)
	}
	g := b.gather(what)
	for _, n := range b.nodes {
		one := k
		one.lane, one.limit, one.done = lanes, limit, g.done
		n.send(&one)
	}
	_, err := g.wait(ctx, limit+limit/2)
	return g.texts(), err
}

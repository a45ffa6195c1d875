package register

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// held returns a lease that a session vouches for, and its holder.
func (b bench) held(seed uint64) (process, distributed.Lease) {
	p := b.process(seed)
	l := b.lease(p, distributed.Request{Instance: "holder"})
	b.after("joined", func() bool { return b.m.fate(id(l)).session != "" })
	return p, l
}

// sessions returns the documents of those that have not ended.
func (b bench) sessions() (keys []string) {
	b.m.with(func() {
		for key := range b.m.docs {
			if strings.HasPrefix(key, sessionKeys) && !ended(b.m.doc(key)) {
				keys = append(keys, key)
			}
		}
	})
	return keys
}

// All leases of a process that are held for long cost one write every T/4 or more. The document of the session goes with the last.
func TestASessionVouchesForAll(t *testing.T) {
	for _, k := range []kind{counts, tells} {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			over(t, k, func(b bench) {
				p := b.process(1)
				var all []distributed.Lease
				for i := range 300 {
					l, _, err := p.Enter(b.Context(), distributed.Request{Key: fmt.Sprint("k", i), Instance: "a", TTL: simTTL})
					require.NoError(t, err)
					all = append(all, l)
				}
				time.Sleep(2 * simTTL)
				require.Len(t, b.sessions(), 1)
				before := b.m.writes()
				time.Sleep(10 * simTTL)
				require.LessOrEqual(t, b.m.writes()-before, 10*beatShare)
				for _, l := range all {
					require.NoError(t, l.Release(b.Context()))
				}
				b.after("ended", func() bool { return len(b.sessions()) == 0 })
			})
		})
	}
}

// A holder that dies is found when the beat of its session has stood still for T, by one that waits. Another lock of it is free at once then,
// also for callers that do not wait.
func TestASessionThatStandsStill(t *testing.T) {
	for _, k := range []kind{counts, tells} {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			over(t, k, func(b bench) {
				dies, l := b.held(1)
				second := distributed.Request{Key: "second", Instance: "holder", TTL: simTTL}
				_, _, err := dies.Enter(b.Context(), second)
				require.NoError(t, err)
				time.Sleep(simTTL)
				p := b.process(2)
				place := b.place(p, distributed.Request{Instance: "b"})
				time.Sleep(2 * simTTL)
				dies.l.cut(true)
				cut := time.Now()
				next := b.granted(place)
				require.False(t, time.Now().Before(l.Until()), "it was held")
				require.LessOrEqual(t, time.Since(cut), simTTL+distributed.HeartbeatInterval(simTTL))
				second.NoWait = true
				other, _, err := b.process(3).Enter(b.Context(), second)
				require.NoError(t, err)
				require.NoError(t, other.Release(b.Context()))
				require.NoError(t, next.Release(b.Context()))
			})
		})
	}
}

// A beat that comes when the session has been ended does nothing. The holder learns that its leases are lost, and others get a new session.
func TestABeatThatComesTooLateDoesNothing(t *testing.T) {
	t.Parallel()
	over(t, counts, func(b bench) {
		late, l := b.held(1)
		late.l.hold(`{"session":`)
		var deliver func() error
		b.after("a beat", func() bool {
			late.l.with(func() { deliver = late.l.held })
			return deliver != nil
		})
		place := b.place(b.process(2), distributed.Request{Instance: "b"})
		next := b.granted(place)
		require.ErrorIs(t, deliver(), ErrConflict)
		late.l.hold("")
		require.Eventually(t, func() bool { return l.Release(b.Context()) != nil }, simTTL, time.Millisecond)
		require.NoError(t, next.Release(b.Context()))
		l = b.lease(late, distributed.Request{Instance: "holder"})
		b.after("joined", func() bool { return b.m.fate(id(l)).session != "" })
		time.Sleep(5 * simTTL)
		require.NoError(t, l.Release(b.Context()))
	})
}

// crossed is a Store that calls first before each Delete.
type crossed struct {
	able
	first func()
}

func (c crossed) Delete(ctx context.Context, key string, from Version) error {
	c.first()
	return c.able.Delete(ctx, key, from)
}

// The beat counts on between the last reading and the end that is tried: that is crossed, and no claim is taken out.
func TestASessionThatLivesIsNotEnded(t *testing.T) {
	t.Parallel()
	over(t, tells, func(b bench) {
		_, l := b.held(1)
		c := claim{Session: b.m.fate(id(l)).session, TTL: simTTL}
		other := New("sim", crossed{able{newLink(b.m, 1, 2, false)}, func() {
			d := b.m.get(c.Session)
			_, err := b.m.put(c.Session, d.Data, d.Version, time.Hour)
			require.NoError(t, err)
		}})
		require.False(t, other.watchOver(b.Context(), c).over)
		other.with(c.Session, func(v *vigil) { v.since = v.since.Add(-simTTL) })
		require.False(t, other.watchOver(b.Context(), c).over)
		require.NoError(t, other.Close())
		time.Sleep(2 * simTTL)
		require.NoError(t, l.Release(b.Context()))
	})
}

// with changes what is known of a session.
func (b *Backend) with(session string, f func(*vigil)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.vigils[session]
	f(&v)
	b.vigils[session] = v
}

// A process that was silent for longer than T finds its leases lost, though no other has ended its session. What it gets then has another.
func TestASessionIsOverWithItsLeases(t *testing.T) {
	t.Parallel()
	over(t, counts, func(b bench) {
		p, l := b.held(1)
		first := b.m.fate(id(l)).session
		p.l.cut(true)
		time.Sleep(simTTL + time.Second)
		require.ErrorIs(t, l.Release(b.Context()), distributed.ErrLeaseLost)
		p.l.cut(false)
		l = b.granted(b.place(p, distributed.Request{Instance: "holder"})) // that took out what was left of it
		b.after("joined", func() bool { return b.m.fate(id(l)).session != "" })
		require.NotEqual(t, first, b.m.fate(id(l)).session)
		require.Len(t, b.sessions(), 1)
		require.NoError(t, l.Release(b.Context()))
	})
}

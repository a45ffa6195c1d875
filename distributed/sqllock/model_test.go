package sqllock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testseed"
)

// user is an instance of the model: it is out, or holds the lock, or waits for it.
type user struct {
	name  string
	b     *Backend
	mode  distributed.Mode
	limit int
	place distributed.Place // of one that waits
	lease distributed.Lease
}

// model is one lock as it has to be: who holds it, and who waits in which order.
type model struct {
	t       *testing.T
	users   []*user
	holders []*user
	queue   []*user
	fence   uint64 // of the last exclusive holder
	drawn   map[uint64]bool
}

func (m *model) admits(mode distributed.Mode, limit int) bool {
	n := len(m.holders)
	return n == 0 || mode == distributed.Shared && m.holders[0].mode == distributed.Shared && (limit == 0 || n < limit)
}

// received takes a lease in, and checks its fence.
func (m *model) received(u *user, l distributed.Lease) {
	u.lease, u.place = l, nil
	m.holders = append(m.holders, u)
	fence := fenceOf(m.t, l)
	require.Greater(m.t, fence, m.fence)
	require.False(m.t, m.drawn[fence], "fence %d is of two leases", fence)
	m.drawn[fence] = true
	if u.mode == distributed.Exclusive {
		m.fence = fence
	}
}

// settle waits for all grants that are due, and then looks that there is no other.
func (m *model) settle() {
	for len(m.queue) > 0 && m.admits(m.queue[0].mode, m.queue[0].limit) {
		u := m.queue[0]
		m.queue = m.queue[1:]
		l := awaited(m.t, u.place)
		require.NotNil(m.t, l, "%s was queued, and its place is lost", u.name)
		m.received(u, l)
	}
	for _, u := range m.queue {
		require.Empty(m.t, u.place.Granted(), "%s has overtaken others", u.name)
	}
}

// enter has a user ask for the lock, perhaps in place of the lease that it has.
func (m *model) enter(u *user, mode distributed.Mode, limit int, noWait bool) {
	prev := u.lease
	if prev != nil {
		m.drop(u)
	}
	u.mode, u.limit = mode, limit
	behind := slices.Clone(m.queue)
	l, p, err := u.b.Enter(context.Background(), distributed.Request{
		Key: "key", Instance: u.name, TTL: time.Minute, Mode: mode, Limit: limit, NoWait: noWait, Prev: prev,
	})
	if prev != nil && err == nil {
		require.NoError(m.t, prev.Release(context.Background()), "it was released by the Enter")
	}
	switch free := len(behind) == 0 && m.admits(mode, limit); {
	case free:
		require.NoError(m.t, err)
		require.NotNil(m.t, l, "the lock is free")
		m.received(u, l)
	case noWait:
		require.ErrorIs(m.t, err, distributed.ErrHeld)
	default:
		require.NoError(m.t, err)
		require.NotNil(m.t, p, "the lock is not free")
		u.place = p
		m.queue = append(m.queue, u)
	}
}

func (m *model) drop(u *user) {
	u.lease = nil
	m.holders = slices.DeleteFunc(m.holders, func(one *user) bool { return one == u })
}

func (m *model) step(rnd *rand.Rand) {
	u := m.users[rnd.IntN(len(m.users))]
	mode, limit := distributed.Mode(min(rnd.IntN(3), 1)), 0
	if mode == distributed.Shared {
		limit = rnd.IntN(4) // 0: a plain reader
	}
	switch what := rnd.IntN(10); {
	case u.place != nil && what < 4:
		require.NoError(m.t, u.place.Leave(context.Background()))
		m.queue = slices.DeleteFunc(m.queue, func(one *user) bool { return one == u })
		u.place = nil
	case u.place != nil:
	case u.lease == nil || what < 3:
		m.enter(u, mode, limit, what == 0 || what == 4)
	case what == 3 && u.mode == distributed.Exclusive:
		require.NoError(m.t, u.lease.Downgrade(context.Background()))
		u.mode = distributed.Shared
	case what == 4:
		require.NoError(m.t, u.lease.Refill(context.Background()))
	default:
		require.NoError(m.t, u.lease.Release(context.Background()))
		m.drop(u)
	}
}

// A lock behaves as the model says, though statements and answers are lost, transactions collide, and a process has one connection. The
// lost answer of a Refill or a Downgrade ends nothing.
func TestModel(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		rnd := testseed.Rand(t)
		d.wire.breaksAtRandom(rand.New(rand.NewPCG(rnd.Uint64(), 0)))
		m := &model{t: t, drawn: map[uint64]bool{}}
		backends := []*Backend{d.backend(t), d.backend(t), d.backend(t)}
		backends[0].db.SetMaxOpenConns(1) // nothing needs a second one
		for i := range 6 {
			m.users = append(m.users, &user{name: fmt.Sprint("user", i), b: backends[i%len(backends)]})
		}
		for range 400 {
			m.step(rnd)
			m.settle()
		}
		d.wire.filtered(nil)
		for _, u := range slices.Clone(m.queue) {
			require.NoError(t, u.place.Leave(context.Background()))
		}
		for _, u := range slices.Clone(m.holders) {
			require.NoError(t, u.lease.Release(context.Background()))
		}
		require.Zero(t, rowsOf(t, backends[0], "waiters"))
	})
}

// breaksAtRandom breaks a statement now and then, but never two in a row.
func (w *wire) breaksAtRandom(rnd *rand.Rand) {
	last := false
	w.breaksBy(func(s *statement) fault {
		n := rnd.IntN(150)
		if last = !last && n < 3 && !strings.HasPrefix(s.text, "ROLLBACK"); last {
			return []fault{lostRequest, lostReply, collides}[n]
		}
		return passes
	})
}

// A request or an answer that is lost has one effect: the same lease, with the same fences, and nothing beside it.
func TestLostStatements(t *testing.T) {
	eachBackend(t, func(t *testing.T, d *database, b *Backend) {
		enter(t, b, "other") // makes the connection
		for _, how := range []fault{lostRequest, lostReply, collides} {
			broken := d.wire.breaksOnce("wllock_locks", how)
			l := enter(t, b, "k")
			require.True(t, broken())
			first := fenceOf(t, l)

			broken = d.wire.breaksOnce("wllock_locks", how)
			next := enter(t, b, "k", prevIs(l))
			require.True(t, broken())
			free(t, l) // it was released by the Enter
			require.Greater(t, fenceOf(t, next), first)
			require.Less(t, fenceOf(t, next), first+uint64(time.Hour), "no block was lost on the way, but for the time")

			broken = d.wire.breaksOnce("wllock_locks", how)
			free(t, next)
			require.True(t, broken())
		}
	})
}

// An Enter whose answers are lost has released the lease before, and knows it: by whatever statement, and whoever comes in between.
func TestARepeatKnowsThatItHasReleased(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b, other := d.backend(t), d.over(d.connector).backend(t)
		queues := func(key string) { queue(t, other, key) }
		update, change := "prior =", "COMMIT"
		if d.dialect == PostgreSQL {
			change = "WITH l AS"
		}
		for key, one := range map[string]struct {
			lost           string // the answers to what has this in it
			before, amidst func(key string)
		}{
			"by an update":   {lost: update},
			"by an insert":   {lost: update, before: b.seen.forget},
			"another comes":  {lost: update, amidst: queues},
			"by a change":    {lost: change, before: func(key string) { b.stuck.note(key, nil) }},
			"behind another": {lost: change, before: queues},
		} {
			l, sent := enter(t, b, key), 0
			if one.before != nil {
				one.before(key)
			}
			d.wire.breaksBy(func(s *statement) fault {
				if !strings.Contains(s.text, one.lost) || sent == 2 {
					return passes
				}
				if sent++; sent == 2 && one.amidst != nil {
					one.amidst(key)
				}
				return lostReply
			})
			_, _, err := try(t.Context(), b, key, prevIs(l))
			d.wire.filtered(nil)
			require.NoError(t, err, key)
			require.Equal(t, 2, sent, key)
			require.NoError(t, l.Release(t.Context()), key)
		}
	})
}

// A lease that had expired in the database, and was taken over by another, is lost, though the row names it as the one before.
func TestALeaseThatWasTakenOverIsLost(t *testing.T) {
	eachBackend(t, func(t *testing.T, d *database, b *Backend) {
		l := enter(t, b, "k")
		run(t, b, "UPDATE {locks} SET expires_at = {now} WHERE name = $1", "k")
		enter(t, d.backend(t), "k")
		queue(t, b, "k", prevIs(l))
		require.ErrorIs(t, l.Release(t.Context()), distributed.ErrLeaseLost)
	})
}

// A copy of the process, as one that is restored from a snapshot, has its name and all it knows. What it asks for is a request of its
// own, and no repeat: neither at once, nor in the queue.
func TestCopyOfTheProcessIsAnother(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b, twin := d.backend(t), d.backend(t)
		twin.process = b.process
		l := enter(t, b, "key")
		_, _, err := try(t.Context(), twin, "key", noWait)
		require.ErrorIs(t, err, distributed.ErrHeld)
		first, second := queue(t, b, "key"), queue(t, twin, "key")
		free(t, l)
		l = awaited(t, first)
		require.Empty(t, second.Granted())
		free(t, l)
		free(t, awaited(t, second))
	})
}

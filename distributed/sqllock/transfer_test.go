package sqllock

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// detach detaches a lease for an hour, under an id that it returns.
func detach(t *testing.T, b *Backend, l distributed.Lease) (id string) {
	t.Helper()
	id = rand.Text()
	require.NoError(t, b.Detach(t.Context(), l, id, time.Hour))
	return id
}

// adopter is the request of who adopts a lease of "key", or discards it.
func adopter(ttl time.Duration) distributed.Request {
	return distributed.Request{Key: "key", Instance: "adopter", TTL: ttl}
}

// A commit that is lost, or its answer, is repeated, and has one effect. The first that a process asks may be to adopt.
func TestTransferIsRepeatedWithOneEffect(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		for _, how := range []fault{lostRequest, lostReply, collides} {
			b := d.backend(t)
			l := enter(t, b, "key")
			last := fenceOf(t, l)
			broken := d.wire.breaksOnce("COMMIT", how)
			id := detach(t, b, l)
			require.True(t, broken())
			free(t, l) // does nothing

			b = d.backend(t, WithParallel(1))
			broken = d.wire.breaksOnce("COMMIT", how)
			l, err := b.Adopt(t.Context(), adopter(time.Minute), id)
			require.NoError(t, err, how)
			require.True(t, broken())
			require.True(t, b.sessions.fit.Load(), "a session was asked first")
			require.Greater(t, fenceOf(t, l), last)
			require.LessOrEqual(t, inspected(t, b, "key").Holders[0].Left, time.Minute/2, "it is to be claimed")
			free(t, enter(t, b, "other")) // it has left the gate
			id = detach(t, b, l)

			b = d.backend(t)
			broken = d.wire.breaksOnce("COMMIT", how)
			require.NoError(t, b.Discard(t.Context(), adopter(time.Minute), id), how)
			require.True(t, broken())
			require.True(t, b.sessions.fit.Load())
			free(t, enter(t, b, "key", noWait))
		}
	})
}

// What was carried out, but never answered, is released: a Detach, and an Adopt.
func TestATransferWithoutAnAnswerIsReleased(t *testing.T) {
	eachBackend(t, func(t *testing.T, d *database, b *Backend) {
		unanswered := func(transfer func() error) {
			d.wire.breaksBy(func(s *statement) fault {
				if s.text == b.is.commit {
					return lostReply
				}
				return passes
			})
			require.ErrorIs(t, transfer(), distributed.ErrUnavailable)
			d.wire.filtered(nil)
		}
		l := enter(t, b, "key")
		unanswered(func() error { return b.Detach(t.Context(), l, rand.Text(), time.Hour) })
		id := detach(t, b, acquired(t, b, "key"))
		unanswered(func() error { _, err := b.Adopt(t.Context(), adopter(time.Hour), id); return err })
		free(t, acquired(t, b, "key"))
	})
}

// What comes late leaves a detached lease as it is: a renewal of the lease before, its release, and the Detach again. A Detach and an Adopt that
// come when both were released leave the lock free.
func TestLateRequestsOfADetachedLease(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		h, l, other := half{b}, enter(t, b, "key"), enter(t, b, "other")
		before := driver.AttemptOf[ours](l)
		id := detach(t, b, l)
		found := inspected(t, b, "key")
		detached := b.client.Orphan(b.client.NextNumber(), distributed.Request{Key: "key", Instance: distributed.DetachedName(id), TTL: time.Hour})
		require.NoError(t, h.Detached(t.Context(), detached, id))

		h.Renew(t.Context(), []*attempt{before})
		h.Renew(t.Context(), []*attempt{before, driver.AttemptOf[ours](other)})
		h.Drop(t.Context(), []*attempt{before})
		_, err := h.Transfer(t.Context(), before, detached)
		require.NoError(t, err)
		now := inspected(t, b, "key")
		require.Equal(t, found.State, now.State)
		require.Equal(t, found.Fence, now.Fence)
		require.Greater(t, now.Holders[0].Left, time.Hour-time.Minute)

		require.NoError(t, b.Discard(t.Context(), adopter(time.Minute), id))
		for _, late := range [][2]*attempt{{before, detached}, {detached, before}} {
			_, err = h.Transfer(t.Context(), late[0], late[1])
			require.ErrorIs(t, err, distributed.ErrLeaseLost)
		}
		free(t, enter(t, b, "key", noWait))
		free(t, other)
	})
}

// A lease whose downgrade was not answered may have readers beside it: it is not detached, and no caller adopts the lock while they read.
func TestALeaseThatWasDowngradedIsNotDetached(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		l, id := enter(t, b, "key"), rand.Text()
		require.NoError(t, b.change(t.Context(), "key", func(s *state) { s.downgrade(s.owner) }))
		reader := enter(t, b, "key", reading, by("reader"))
		require.ErrorIs(t, b.Detach(t.Context(), l, id, time.Hour), distributed.ErrLeaseLost)
		_, err := b.Adopt(t.Context(), adopter(time.Minute), id)
		require.ErrorIs(t, err, distributed.ErrLeaseLost)
		free(t, reader)
	})
}

// Whoever has detached a lease may go. The lease that an adopter gets is short again: if that dies at once, the next in line, which has
// seen the lock taken for an hour, gets it after the claim window.
func TestADetachedLeaseOutlivesItsProcess(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		l := enter(t, b, "key", lasting(ttl))
		p := queue(t, d.backend(t), "key", by("next"))
		id := detach(t, b, l)
		require.NoError(t, b.Close())
		require.Eventually(t, func() bool { return p.Holder() == distributed.DetachedName(id) }, testlocker.Patience, time.Millisecond)
		adopted, err := d.backend(t).Adopt(t.Context(), adopter(ttl), id)
		require.NoError(t, err)
		last := fenceOf(t, adopted)
		adopted.Abandon()
		start := time.Now()
		next := awaited(t, p)
		testscope.InTime(t, time.Since(start), ttl+slack, "a grant after the adopter has died")
		require.Greater(t, fenceOf(t, next), last)
		free(t, next)
	})
}

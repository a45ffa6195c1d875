package sqllock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/testseed"
)

// queueOf is a lock with so many readers and no owner, and waiters with these limits; -1: a writer.
func queueOf(readers int, limits []int) *state {
	s := &state{now: 1, mode: distributed.Shared, ttl: 100, expires: 50}
	add := func(e entry) {
		s.ticket++
		e.ticket, e.ttl, e.expires, e.mode = s.ticket, 100, 50, distributed.Shared
		if e.limit < 0 {
			e.limit, e.mode = 0, distributed.Exclusive
		}
		s.entries = append(s.entries, e)
	}
	for i := range readers {
		add(entry{token: fmt.Sprint("reader", i), holds: true})
	}
	for i, limit := range limits {
		add(entry{token: fmt.Sprint(i), limit: limit})
	}
	return s
}

// In whatever order waiters come to take the lock, those get it whom a queue that grants in order lets in, and no limit is exceeded
// by one that takes.
func TestTurnsInAnyOrder(t *testing.T) {
	rnd := testseed.Rand(t)
	for range 2000 {
		var limits []int
		for range 1 + rnd.IntN(6) {
			limits = append(limits, rnd.IntN(6)-1)
		}
		readers := rnd.IntN(3)
		s, want := queueOf(readers, limits), inOrder(readers, limits)
		waiting := len(limits)
		for moved := true; moved; {
			moved = false
			for _, i := range rand.New(rand.NewPCG(rnd.Uint64(), 0)).Perm(len(limits)) {
				token, c := fmt.Sprint(i), claim{mode: distributed.Shared, ttl: 100_000, limit: max(limits[i], 0)}
				if e := s.find(token); e == nil || e.holds {
					continue
				}
				if c.token = token; limits[i] < 0 {
					c.mode = distributed.Exclusive
				}
				if s.take(&c).outcome == granted {
					moved = true
					waiting--
				}
			}
		}
		require.Equal(t, want, len(limits)-waiting, "%d readers, limits %v", readers, limits)
		for i := range want {
			e := s.find(fmt.Sprint(i))
			require.True(t, e != nil && e.holds || s.owner == fmt.Sprint(i), "%d readers, limits %v: not the first", readers, limits)
		}
	}
}

// inOrder is how many a queue that grants in order lets in.
func inOrder(held int, limits []int) (n int) {
	for _, limit := range limits {
		if limit < 0 && held > 0 || limit > 0 && held >= limit {
			return n
		}
		n++
		if held++; limit < 0 {
			return n
		}
	}
	return n
}

// A request whose reply was lost is repeated when others have had fences since: it gets new ones, from the one statement and from
// a transaction.
func TestRepeatedPermitHasFencesOfItsOwn(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b, ctx := d.backend(t), t.Context()
		claimOf := func(token string) *claim {
			return &claim{name: "key", token: token, mode: distributed.Shared, limit: 9, ttl: time.Minute}
		}
		first, err := b.acquire(ctx, claimOf("first"))
		require.NoError(t, err)
		require.Equal(t, granted, first.outcome)
		last := first.last
		repeat := func(ask func(c *claim) answer) {
			var other answer
			require.NoError(t, b.change(ctx, "key", func(s *state) { other = s.enter(claimOf(b.newToken())) }))
			require.Equal(t, granted, other.outcome)
			require.GreaterOrEqual(t, other.last-other.count, last)
			again := ask(claimOf("first"))
			require.Equal(t, granted, again.outcome)
			require.GreaterOrEqual(t, again.last-again.count, other.last)
			last = again.last
		}
		for range 2 {
			repeat(func(c *claim) answer {
				a, err := b.acquire(ctx, c)
				require.NoError(t, err)
				return a
			})
			repeat(func(c *claim) (a answer) {
				require.NoError(t, b.change(ctx, c.name, func(s *state) { a = s.enter(c) }))
				return a
			})
		}
		expire(t, b, "key")
	})
}

// Permits beside the owner are renewed without the lock's row: a transaction that found one expired may have let another in, and delete it
// after that renewal. So an answer that comes after the lease's end renews nothing, and the row is removed.
func TestALateAnswerDoesNotRenewAPermit(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		b.renewing <- struct{}{} // no other renewal
		enter(t, b, "key", permits(2), lasting(time.Second), by("owner"))
		l := enter(t, b, "key", permits(2), lasting(time.Second), by("beside"))
		a := driver.AttemptOf[ours](l)
		require.True(t, a.Wire.seat)
		var sent time.Time
		b.renewSome(t.Context(), []*attempt{a}, func(ctx context.Context, some []*attempt) (map[string]heldRow, error) {
			sent = time.Now()
			held, err := b.renewSeats(ctx, some)
			for !distributed.Over(time.Now(), l.Until()) {
				time.Sleep(time.Millisecond)
			}
			return held, err
		})
		require.True(t, distributed.Over(time.Now(), l.Until()), "sent at %v, until %v", sent, l.Until())
		require.ErrorIs(t, l.Release(t.Context()), distributed.ErrLeaseLost)
		require.Eventually(t, func() bool { return rowsOf(t, b, "waiters") == 0 }, time.Minute, time.Millisecond)
		<-b.renewing
	})
}

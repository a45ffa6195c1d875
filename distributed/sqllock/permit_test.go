package sqllock

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/testseed"
)

// queueOf is a lock with so many readers beside its owner, which may be none, and waiters with these limits; -1: a writer.
func queueOf(owner string, readers int, limits ...int) *state {
	s := &state{now: 1, owner: owner, mode: distributed.Shared, ttl: 100, expires: 50}
	add := func(e entry) {
		s.ticket++
		e.ticket, e.ttl, e.expires, e.mode = s.ticket, 100, 50, distributed.Shared
		s.entries = append(s.entries, e)
	}
	for i := range readers {
		add(entry{token: "r" + string(rune('a'+i)), holds: true})
	}
	for i, limit := range limits {
		add(entry{token: string(rune('a' + i)), limit: max(limit, 0)})
		if limit < 0 {
			s.entries[len(s.entries)-1].mode = distributed.Exclusive
		}
	}
	return s
}

// Who may take the lock now: those that can all take it, in any order.
func TestTurns(t *testing.T) {
	for _, c := range []struct {
		name   string
		s      *state
		may    string
		isFree bool
	}{
		{"nobody is there", queueOf("", 0), "", true},
		{"as many as are free", queueOf("o", 0, 3, 3, 3), "ab", false},
		{"readers count", queueOf("o", 1, 3, 3), "a", false},
		{"readers without an owner count", queueOf("", 2, 3, 3), "a", false},
		{"none is free", queueOf("o", 2, 3), "", false},
		{"the head holds up larger limits and none", queueOf("o", 0, 1, 9, 0), "", false},
		{"who comes later must not take the last seat of the head", queueOf("", 0, 1, 2, 0), "a", false},
		{"a writer after permits", queueOf("", 0, 2, -1, 2), "a", false},
		{"a writer before permits", queueOf("", 0, -1, 2), "a", false},
		{"a writer waits for all", queueOf("", 1, -1, 2), "", false},
		{"readers before a permit", queueOf("o", 0, 0, 0, 4, 4), "abc", false},
	} {
		var may strings.Builder
		for _, e := range c.s.entries {
			if !e.holds && c.s.mayTake(e.token) {
				may.WriteString(e.token)
			}
		}
		require.Equal(t, c.may, may.String(), c.name)
		require.Equal(t, c.isFree, c.s.isFree(&claim{mode: distributed.Shared, limit: 9}), c.name)
	}
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
		s, want := queueOf("", readers, limits...), inOrder(readers, limits)
		waiting := len(limits)
		for moved := true; moved; {
			moved = false
			for _, i := range rand.New(rand.NewPCG(rnd.Uint64(), 0)).Perm(len(limits)) {
				token, c := string(rune('a'+i)), claim{mode: distributed.Shared, ttl: 100_000, limit: max(limits[i], 0)}
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
			e := s.find(string(rune('a' + i)))
			require.True(t, e != nil && e.holds || s.owner == string(rune('a'+i)), "%d readers, limits %v: not the first", readers, limits)
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
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
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

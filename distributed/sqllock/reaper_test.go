package sqllock

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testscope"
)

// reap runs a pass, if it is this process's turn.
func reap(t *testing.T, b *Backend) (crowded bool) {
	t.Helper()
	crowded, err := b.reapTurn(t.Context(), false)
	require.NoError(t, err)
	return crowded
}

// A row goes in the second pass, and the fences of its lock go on above the floor, though the clock may have been set back.
func TestReaper(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		future := time.Now().Add(24 * time.Hour).UnixNano() // as if the clock had been set back since
		free(t, enter(t, b, "unused"))
		run(t, b, "UPDATE {locks} SET fence = $1 WHERE name = 'unused'", future)
		enter(t, b, "crashed").Abandon()
		used := enter(t, b, "used")

		reap(t, b)
		require.Equal(t, 3, rowsOf(t, b, "locks"), "none is old")
		aged(t, b, 2*DefaultReapAge)
		require.NoError(t, used.Refill(t.Context())) // touches its row
		reap(t, b)
		require.Equal(t, 3, rowsOf(t, b, "locks"), "the first pass raises the floor")
		reap(t, b)
		require.Equal(t, 3, rowsOf(t, b, "locks"), "it is not yet time for another pass")
		aged(t, b, b.set.reapTick)
		reap(t, b)
		require.Equal(t, 1, rowsOf(t, b, "locks"), "the one that is used")
		require.Greater(t, fenceOf(t, enter(t, b, "unused")), uint64(future))
	})
}

// fill makes rows of free locks that were last used so long ago.
func fill(t *testing.T, b *Backend, n int, age time.Duration) {
	t.Helper()
	for first := 0; first < n; first += 1000 {
		var rows []string
		for i := first; i < min(first+1000, n); i++ {
			rows = append(rows, fmt.Sprintf("('order:%06d', 1000, {now} - %d)", i, micros(age)))
		}
		run(t, b, "INSERT INTO {locks} (name, fence, update_time) VALUES "+strings.Join(rows, ","))
	}
}

// passNow runs a pass at once that takes the floor of the one before for old enough.
func passNow(t *testing.T, b *Backend) ReaperStats {
	t.Helper()
	run(t, b, "UPDATE {meta} SET expires_at = 0 WHERE name IN ('reaper', 'floor')")
	reap(t, b)
	s, err := b.ReaperStats(t.Context())
	require.NoError(t, err)
	return s
}

// However many rows are unused, the second pass takes them all, and says so to all processes.
func TestReaperTakesAllThatIsUnused(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b, other := d.backend(t), d.backend(t)
		fill(t, b, 2*reapRange+10, 2*DefaultReapAge)
		used := enter(t, b, "order:000500-")
		s := passNow(t, b)
		require.EqualValues(t, 2*reapRange+11, s.Rows)
		require.Zero(t, s.Deleted)
		s = passNow(t, b)
		require.Equal(t, 1, rowsOf(t, b, "locks"))
		seen, err := other.ReaperStats(t.Context())
		require.NoError(t, err)
		require.Equal(t, [3]int64{1, 2*reapRange + 10, 0}, [3]int64{seen.Rows, seen.Deleted, seen.Backlog})
		require.Equal(t, s.Ended, seen.Ended)
		require.False(t, seen.Ended.IsZero() || seen.Took <= 0)
		require.WithinRange(t, seen.Ended, seen.At.Add(-time.Hour), seen.At.Add(time.Second), "SQLite's clock has milliseconds")
		require.True(t, seen.Since.IsZero(), "nothing is left")
		free(t, used)
	})
}

// A pass that ends before the end of the table has raised the floor, so that the next one deletes what it has seen. That it has not come
// to the end is seen, and is a backlog when it lasts.
func TestReaperThatIsBrokenOffIsNotInVain(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		fill(t, b, reapRange+10, 2*DefaultReapAge)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var ranges atomic.Int64
		d.wire.logTo(func(text string) {
			if strings.Contains(text, "ORDER BY l.name LIMIT") && ranges.Add(1) == 2 {
				cancel()
			}
		})
		_, err := b.reapTurn(ctx, false)
		require.Error(t, err)
		d.wire.filtered(nil)
		since := func() time.Time {
			_, since, err := b.Backlog(t.Context())
			require.NoError(t, err)
			return since
		}
		require.Zero(t, since(), "it may be under way")
		run(t, b, "UPDATE {meta} SET value = value - $1 WHERE name = 'reaper:since'", micros(3*b.set.reapTick))
		require.NotZero(t, since())
		passNow(t, b)
		require.Zero(t, rowsOf(t, b, "locks"))
		require.Zero(t, since())
	})
}

// The reaper waits for no row that somebody has locked, be it used or not: meanwhile it would keep others locked. What else is old it
// changes all the same, and what it has left is a backlog.
func TestReaperWaitsForNoLockedRow(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		fill(t, b, 10, 2*DefaultReapAge)
		enter(t, b, "a used one")
		spoil(t, b)
		for _, key := range []string{"a used one", "order:000007"} {
			lockRow(t, d.backend(t), key)
		}
		passNow(t, b)
		s := passNow(t, b)
		require.Equal(t, [3]int64{2, 9, 1}, [3]int64{s.Rows, s.Deleted, s.Backlog})
		require.False(t, s.Since.IsZero())
		require.Zero(t, rowsOf(t, b, "waiters"))
		var notes int
		ask(t, b, "SELECT COUNT(*) FROM {meta} WHERE name = 'a note'", &notes)
		require.Zero(t, notes)
	})
}

// leaveWaiter adds a place that no process of this test keeps.
func leaveWaiter(t *testing.T, b *Backend, name string) {
	t.Helper()
	run(t, b, "UPDATE {locks} SET queued = queued + 1, ticket = ticket + 1 WHERE name = '"+name+"'")
	run(t, b, "INSERT INTO {waiters} (name, ticket, token, mode, state, ttl, expires_at) "+
		"VALUES ('"+name+"', 1, 'w', 0, 0, 60000000, {now} + 30000000)")
}

// spoil makes one of each kind that a pass mends.
func spoil(t *testing.T, b *Backend) {
	t.Helper()
	run(t, b, "UPDATE {locks} SET broken = 'x' WHERE name = 'order:000003'")
	run(t, b, "UPDATE {locks} SET queued = 1 WHERE name = 'order:000004'")
	run(t, b, "INSERT INTO {waiters} (name, ticket, token, mode, state, ttl, expires_at) VALUES ('none', 1, 'stray', 0, 0, 1, 1)")
	run(t, b, "INSERT INTO {meta} (name, value, expires_at) VALUES ('a note', 1, 1)")
}

// A process that dies or stands still in a pass leaves nothing locked: every statement commits by itself.
func TestReaperHasNoTransaction(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		fill(t, b, 10, 2*DefaultReapAge)
		spoil(t, b)
		statements := 0
		d.wire.logTo(func(text string) {
			statements++
			assert.NotContains(t, text, "BEGIN")
		})
		for range 3 {
			passNow(t, b)
		}
		d.wire.filtered(nil)
		require.Greater(t, statements, 20)
		require.Zero(t, rowsOf(t, b, "locks"))
	})
}

// Who stood still in a pass, and finds that another has taken the turn meanwhile, stops.
func TestReaperStopsWhenItsTurnWasTaken(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		a, b := d.backend(t), d.backend(t)
		turn := func(b *Backend) (*pass, bool) {
			known, err := b.reaping(t.Context())
			require.NoError(t, err)
			p := b.newPass(known)
			mine, err := p.take(t.Context(), false)
			require.NoError(t, err)
			return p, mine
		}
		first, mine := turn(a)
		require.True(t, mine)
		_, mine = turn(b)
		require.False(t, mine, "one at a time")
		first.checked = time.Now().Add(-turnCheck)
		require.NoError(t, first.keep(t.Context()))
		run(t, b, "UPDATE {meta} SET expires_at = 0 WHERE name = 'reaper'")
		_, mine = turn(b)
		require.True(t, mine)
		require.NoError(t, first.keep(t.Context()), "it has just made sure")
		first.checked = time.Now().Add(-turnCheck)
		require.ErrorIs(t, first.keep(t.Context()), errTurnLost)
		first.known.turn++ // as if it had read the same number as another
		known := first.known
		known.turn, known.due = known.turn-1, 0
		mine, err := a.newPass(known).take(t.Context(), false)
		require.NoError(t, err)
		require.False(t, mine, "the number decides")
	})
}

// The database's clock was a year ahead, and was set back: the reaper's turn, the floor, free rows, and those of processes that are gone
// have times that are ahead. They count from the first pass on.
func TestReaperGoesOnWhenTheClockWasSetBack(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		fill(t, b, 10, 0)
		enter(t, b, "dead").Abandon()
		leaveWaiter(t, b, "dead")
		aged(t, b, -365*24*time.Hour)
		run(t, b, "UPDATE {meta} SET value = 2000, expires_at = {now} + $1 WHERE name = 'floor'", micros(365*24*time.Hour))
		run(t, b, "UPDATE {meta} SET expires_at = {now} + $1 WHERE name = 'reaper'", micros(365*24*time.Hour))
		other := d.backend(t)
		reap(t, b)
		known, err := other.reaping(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, known.turn)
		reap(t, other) // not yet its turn
		known, err = other.reaping(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, known.turn)
		require.LessOrEqual(t, known.raised, known.now)
		aged(t, b, 2*DefaultReapAge)
		for range 3 { // without the waiter the row is unused, which raises the floor
			passNow(t, b)
		}
		require.Zero(t, rowsOf(t, b, "waiters"))
		require.Zero(t, rowsOf(t, b, "locks"))
	})
}

// The database's clock is set forward by days: rows of holders look old until they are renewed, and their fences may be below the floor.
// The reaper leaves what is in use, and goes on.
func TestReaperSparesRowsInUseWhenTheClockIsSetForward(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		fill(t, b, 10, 2*DefaultReapAge)
		held := enter(t, b, "held")
		enter(t, b, "another")
		leaveWaiter(t, b, "another")
		passNow(t, b)
		run(t, b, "UPDATE {meta} SET value = $1 WHERE name = 'floor'", int64(1)<<61) // above the fences of all
		aged(t, b, 3*DefaultReapAge)
		reap(t, b)
		require.Equal(t, 12, rowsOf(t, b, "locks"))
		require.Equal(t, 1, rowsOf(t, b, "waiters"))
		renew := fmt.Sprintf("UPDATE {locks} SET update_time = {now}, expires_at = {now} + %d WHERE owner <> ''", micros(time.Minute))
		run(t, b, renew)
		aged(t, b, b.set.reapTick)
		reap(t, b)
		require.Equal(t, 2, rowsOf(t, b, "locks"))
		free(t, held)
	})
}

// Clients that invent keys fill the table: rows of free locks go within minutes then, in two passes as always.
func TestReaperOfACrowdTakesYoungRows(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		b.set.reapCrowd = 100
		fill(t, b, 110, time.Hour)
		enter(t, b, "held", lasting(time.Hour))
		require.Greater(t, b.reapPause(false), 2*crowdTick)
		require.True(t, reap(t, b))
		require.LessOrEqual(t, b.reapPause(true), 2*crowdTick)
		require.Equal(t, 111, rowsOf(t, b, "locks"), "none is old")
		b = d.backend(t) // another process knows it as well
		b.set.reapCrowd = 100
		for _, left := range []int{111, 1} {
			aged(t, b, crowdTick+time.Second)
			require.Equal(t, left > 1, reap(t, b))
			require.Equal(t, left, rowsOf(t, b, "locks"), "the first pass raises the floor, and the second leaves the one that is held")
		}
	})
}

// A process that has met many new names looks soon whether they make a crowd, and not each time.
func TestReaperComesEarlyForManyNames(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		turn := func(early bool) int64 {
			_, err := b.reapTurn(t.Context(), early)
			require.NoError(t, err)
			known, err := b.reaping(t.Context())
			require.NoError(t, err)
			return known.turn
		}
		require.EqualValues(t, 1, turn(false))
		require.EqualValues(t, 1, turn(true), "there was one a moment ago")
		aged(t, b, crowdTick+time.Second)
		require.EqualValues(t, 1, turn(false))
		require.EqualValues(t, 2, turn(true))
	})
	n := names{many: make(chan struct{}, 1), crowd: 3}
	for _, name := range []string{"a", "a", "b"} {
		n.note(name, nil)
	}
	require.Empty(t, n.many)
	for _, name := range []string{"c", "d", "e", "f"} {
		n.note(name, nil)
	}
	require.Len(t, n.many, 1)
}

// A database whose session changes names on their way would have a pass begin anew for ever.
func TestReaperEndsWhereNamesAreNotSorted(t *testing.T) {
	p := &pass{checked: time.Now()}
	err := p.walk(t.Context(), func(context.Context, string) (string, int, error) { return "a", reapRange, nil })
	require.ErrorIs(t, err, errNoProgress)
}

// Nothing is deleted under a floor that was raised a moment ago: a statement may run that has read the one of before.
func TestReaperWaitsForTheFloor(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		fill(t, b, 10, 2*DefaultReapAge)
		for range 2 {
			run(t, b, "UPDATE {meta} SET expires_at = 0 WHERE name = 'reaper'")
			reap(t, b)
			require.Equal(t, 10, rowsOf(t, b, "locks"))
		}
		p := b.newPass(reaping{now: time.Now().UnixMicro(), floor: 1000}) // it has read an older one: the statement looks itself
		deleted, err := p.delete(t.Context(), []string{"order:000001"})
		require.NoError(t, err)
		require.Zero(t, deleted)
	})
}

// A place that nobody keeps is not counted for ever, also if the lock is held and renewed all the time.
func TestReaperRemovesDeadWaitersOfALongLease(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		l := enter(t, b, "leader")
		leaveWaiter(t, b, "leader")
		aged(t, b, DefaultReapAge+time.Hour)
		run(t, b, "UPDATE {locks} SET update_time = {now}, expires_at = {now} + $1", micros(time.Minute)) // it is renewed
		reap(t, b)
		require.Zero(t, rowsOf(t, b, "waiters"))
		free(t, l)
		free(t, enter(t, b, "leader")) // it is free, and nobody is queued
	})
}

// Rows of waiters that somebody has deleted by hand do not make a lock contended for ever. A row that has changed since it was read keeps
// its counts.
func TestReaperCountsAnew(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		counted := func() (queued, members int) {
			ask(t, b, "SELECT queued, members FROM {locks} WHERE name = 'k'", &queued, &members)
			return queued, members
		}
		l := enter(t, b, "k")
		run(t, b, "UPDATE {locks} SET queued = 3, members = 2, ticket = 5, update_time = 7 WHERE name = 'k'") // as five have left it
		p := b.newPass(reaping{})
		for _, changed := range []func(*counts){func(c *counts) { c.ticket++ }, func(c *counts) { c.update++ }, func(c *counts) { c.queued++ }} {
			c := counts{name: "k", ticket: 5, update: 7, queued: 3, members: 2}
			changed(&c)
			require.NoError(t, p.recount(t.Context(), c))
			queued, members := counted()
			require.Equal(t, [2]int{3, 2}, [2]int{queued, members})
		}
		passNow(t, b)
		queued, members := counted()
		require.Zero(t, queued+members)
		free(t, l)
	})
}

// A table of many unused rows holds up no lock while they are looked at and deleted, and no lease is lost.
func TestReaperHoldsUpNoLock(t *testing.T) {
	testscope.Long(t, "measures beside a large table")
	each(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		rows := testscope.Scale(50_000, 1_000_000)
		fill(t, b, rows, 2*DefaultReapAge)
		held := enter(t, b, "held", lasting(5*time.Second))
		worst := time.Duration(0)
		for range 2 {
			run(t, b, "UPDATE {meta} SET expires_at = 0 WHERE name IN ('reaper', 'floor')")
			done := make(chan error)
			go func() {
				_, err := b.reapTurn(t.Context(), false)
				done <- err
			}()
			for under := true; under; {
				select {
				case err := <-done:
					require.NoError(t, err)
					under = false
				default:
					start := time.Now()
					free(t, enter(t, b, "busy"))
					worst = max(worst, time.Since(start))
				}
			}
		}
		require.Equal(t, 2, rowsOf(t, b, "locks"))
		require.True(t, held.Healthy())
		testscope.InTime(t, worst, 500*time.Millisecond, "a lock beside a pass") // 15 to 60 ms where nothing else runs
	})
}

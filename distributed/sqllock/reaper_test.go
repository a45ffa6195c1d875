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

// reap runs a turn that is due, after which so many locks have rows.
func reap(t *testing.T, b *Backend, left int) {
	t.Helper()
	run(t, b, turnIsDue, micros(b.set.reapTick()))
	require.NoError(t, b.reapTurn(t.Context()))
	require.Equal(t, left, rowsOf(t, b, "locks"), "rows of locks")
}

const turnIsDue = "UPDATE {meta} SET value = {now} - $1 WHERE name = 'reaper'"

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

// leaveWaiter adds a place that no process of this test keeps.
func leaveWaiter(t *testing.T, b *Backend, name string) {
	t.Helper()
	run(t, b, "UPDATE {locks} SET queued = queued + 1, ticket = ticket + 1 WHERE name = '"+name+"'")
	run(t, b, "INSERT INTO {waiters} (name, ticket, token, mode, state, ttl, expires_at) "+
		"VALUES ('"+name+"', 1, 'w', 0, 0, 60000000, {now} + 30000000)")
}

// The row of a lock goes a day after its last use. What is held, shared, waited for, or was used lately stays.
func TestReaper(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		free(t, enter(t, b, "unused"))
		enter(t, b, "crashed").Abandon()
		enter(t, b, "used")
		enter(t, b, "waited for").Abandon()
		enter(t, b, "shared", reading).Abandon()
		enter(t, b, "shared", reading, by("another"))
		reap(t, b, 5) // none is old
		aged(t, b, 2*DefaultReapAge)
		leaveWaiter(t, b, "waited for")
		run(t, b, "UPDATE {locks} SET update_time = {now} WHERE name = 'used'")
		run(t, b, "UPDATE {waiters} SET expires_at = {now} + ttl") // they have heartbeats, and renewals
		reap(t, b, 3)
		require.Equal(t, 2, rowsOf(t, b, "waiters"))
	})
}

// A row goes when its fence lies behind the clock by a day. So a new row's fences are above it, also if the clock is set back by so much.
func TestReaperKeepsFencesThatAClockSetBackMightRepeat(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		free(t, enter(t, b, "unused"))
		aged(t, b, 2*DefaultReapAge)
		fence := func(ahead time.Duration, left int) {
			run(t, b, "UPDATE {locks} SET fence = ({now} - $1) * 1000", micros(DefaultReapAge-ahead))
			reap(t, b, left)
		}
		fence(time.Minute, 1)
		fence(-b.set.reapTick()-time.Minute, 0)
	})
}

// However many rows are unused, one turn takes them all. Every statement commits by itself.
func TestReaperTakesAllThatIsUnused(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b, other := d.backend(t), d.backend(t)
		backlog := func() (rows int64, since time.Time) {
			rows, since, err := other.Backlog(t.Context())
			require.NoError(t, err)
			return rows, since
		}
		fill(t, b, 2*reapRange+10, 2*DefaultReapAge-time.Hour)
		used := enter(t, b, "order:000500-")
		rows, _ := backlog()
		require.Zero(t, rows, "they are not late")
		run(t, b, "UPDATE {locks} SET update_time = update_time - $1 WHERE name = 'order:000007'", micros(2*time.Hour))
		rows, since := backlog()
		require.EqualValues(t, 1, rows)
		require.WithinDuration(t, time.Now().Add(-DefaultReapAge-time.Hour), since, time.Minute)
		d.wire.logTo(func(text string) { assert.NotContains(t, text, "BEGIN") })
		reap(t, b, 1)
		d.wire.filtered(nil)
		rows, since = backlog()
		require.Zero(t, rows)
		require.Zero(t, since)
		free(t, used)
	})
}

// The next turn takes what one that was broken off has left.
func TestReaperThatIsBrokenOffIsNotInVain(t *testing.T) {
	eachBackend(t, func(t *testing.T, d *database, b *Backend) {
		fill(t, b, reapRange+10, 2*DefaultReapAge)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var ranges atomic.Int64
		d.wire.logTo(func(text string) {
			if strings.Contains(text, "ORDER BY l.name LIMIT") && ranges.Add(1) == 2 {
				cancel()
			}
		})
		run(t, b, turnIsDue, micros(b.set.reapTick()))
		require.Error(t, b.reapTurn(ctx))
		d.wire.filtered(nil)
		require.Equal(t, 10, rowsOf(t, b, "locks"))
		reap(t, b, 0)
	})
}

// The reaper waits for no row that somebody has locked, be it used or not: meanwhile it would keep others locked.
func TestReaperWaitsForNoLockedRow(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		b := d.backend(t)
		fill(t, b, 10, 2*DefaultReapAge)
		enter(t, b, "a used one")
		for _, key := range []string{"a used one", "order:000007"} {
			lockRow(t, d.backend(t), key)
		}
		reap(t, b, 2)
	})
}

// One process has the turn, and not twice in a short time, unless the clock was set back since.
func TestReaperGoesByTurns(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		a, b := d.backend(t), d.backend(t)
		reap(t, a, 0)
		fill(t, b, 10, 2*DefaultReapAge)
		require.NoError(t, b.reapTurn(t.Context()))
		require.Equal(t, 10, rowsOf(t, b, "locks"))
		run(t, b, "UPDATE {meta} SET value = {now} + $1 WHERE name = 'reaper'", micros(365*24*time.Hour))
		require.NoError(t, b.reapTurn(t.Context()))
		require.Zero(t, rowsOf(t, b, "locks"))
	})
}

// The database's clock is set forward by days: rows of holders and waiters look old until they are renewed. The reaper leaves them, and the
// next turn takes what is unused.
func TestReaperSparesRowsInUseWhenTheClockIsSetForward(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		fill(t, b, 10, 2*DefaultReapAge)
		reap(t, b, 0)
		fill(t, b, 10, time.Hour)
		held := enter(t, b, "held")
		enter(t, b, "another")
		leaveWaiter(t, b, "another")
		aged(t, b, 3*DefaultReapAge)
		require.NoError(t, b.reapTurn(t.Context()))
		require.Equal(t, 12, rowsOf(t, b, "locks"))
		require.Equal(t, 1, rowsOf(t, b, "waiters"))
		run(t, b, "UPDATE {locks} SET update_time = {now}, expires_at = {now} + 60000000 WHERE owner <> ''")
		reap(t, b, 2)
		free(t, held)
	})
}

// A place that nobody keeps is not counted for ever, also if the lock is held and renewed all the time. Nor are rows of waiters that
// somebody has deleted by hand. Notes that have expired go.
func TestReaperCountsAnew(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		l, other := enter(t, b, "leader"), enter(t, b, "k")
		leaveWaiter(t, b, "leader")
		aged(t, b, DefaultReapAge+2*time.Hour)
		run(t, b, "UPDATE {locks} SET update_time = {now}, expires_at = {now} + $1", micros(time.Minute)) // both are renewed
		run(t, b, "INSERT INTO {meta} (name, value, expires_at) VALUES ('a note', 1, 1)")
		run(t, b, "UPDATE {locks} SET queued = 3, members = 2 WHERE name = 'k'")
		reap(t, b, 2)
		var counted, notes int
		ask(t, b, "SELECT SUM(queued + members) FROM {locks}", &counted)
		ask(t, b, "SELECT COUNT(*) FROM {meta} WHERE name = 'a note'", &notes)
		require.Zero(t, counted+rowsOf(t, b, "waiters")+notes)
		free(t, l)
		free(t, other)
	})
}

// A table of many unused rows holds up no lock while they are looked at and deleted, and no lease is lost.
func TestReaperHoldsUpNoLock(t *testing.T) {
	testscope.Long(t, "measures beside a large table")
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		fill(t, b, testscope.Scale(50_000, 1_000_000), 2*DefaultReapAge)
		held := enter(t, b, "held", lasting(5*time.Second))
		run(t, b, turnIsDue, micros(b.set.reapTick()))
		done := make(chan error)
		go func() { done <- b.reapTurn(t.Context()) }()
		worst := time.Duration(0)
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
		require.Equal(t, 2, rowsOf(t, b, "locks"))
		require.True(t, held.Healthy())
		testscope.InTime(t, worst, 500*time.Millisecond, "a lock beside a turn") // 15 to 60 ms where nothing else runs
	})
}

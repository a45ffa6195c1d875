package jobs

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// fenced is the store of a leader: it takes a write unless it has seen a larger fence, and lists the fences that it has taken,
// each once, with who wrote. Fences have 19 digits, which compare like numbers.
var fenced = redis.NewScript(`
local last = redis.call('GET', 'fence') or '0'
if #last == #ARGV[1] and last > ARGV[1] then return 0 end
if last ~= ARGV[1] then redis.call('RPUSH', 'leaders', ARGV[1] .. ' ' .. ARGV[2]) end
redis.call('SET', 'fence', ARGV[1])
return 1`)

// lead leads again and again. A leader writes all the time, and says "leads", "refused" and "deposed", with its fence.
func lead(l *wllock.Locker, store *redis.Client) {
	who := fmt.Sprint(time.Now().UnixNano())
	must(l.Lead(context.Background(), "leader", "outbox", func(ctx context.Context) error {
		held, _ := wllock.HeldFrom(ctx)
		fence := held.Fence()
		for said, deposed := false, false; ; said = true {
			// It writes once more when it is deposed: a process that was stopped has looked before, and does not know.
			taken, err := fenced.Run(context.Background(), store, nil, fence, who).Bool()
			must(err)
			switch {
			case !taken:
				fmt.Println("refused", fence)
				<-ctx.Done()
				return ctx.Err()
			case deposed:
				fmt.Println("deposed", fence)
				return ctx.Err()
			case !said:
				fmt.Println("leads", fence)
			}
			select {
			case <-ctx.Done():
				deposed = true
			case <-time.After(5 * time.Millisecond):
			}
		}
	}))
}

const leaseTTL = time.Second

// election is processes that lead one after the other.
type election struct {
	t      *testing.T
	lines  chan line
	store  *redis.Client
	leader *child
	fence  uint64
	others []string // what was said besides
}

func newElection(t *testing.T) (*election, []*child) {
	server := redistest.Start(t)
	e := &election{t: t, lines: make(chan line, 100), store: server.Client(func(o *redis.Options) { o.DB = 1 })}
	var children []*child
	for range 3 {
		children = append(children, startChild(t, e.lines, "lead", server.Addr, leaseTTL))
	}
	e.next()
	return e, children
}

// next waits until a process leads, and returns when it said so.
func (e *election) next() time.Time {
	e.t.Helper()
	l := e.says("leads")
	fence, err := strconv.ParseUint(strings.TrimPrefix(l.text, "leads "), 10, 64)
	require.NoError(e.t, err)
	require.Greater(e.t, fence, e.fence, "the fence grows with every leader")
	e.leader, e.fence = l.from, fence
	return l.at
}

// says waits for a line that begins with the word, and counts the others: a process that gets no time on a busy machine loses its
// lease, too.
func (e *election) says(word string) line {
	e.t.Helper()
	for timeout := time.After(30 * time.Second); ; {
		select {
		case l := <-e.lines:
			if strings.HasPrefix(l.text, word+" ") {
				return l
			}
			e.others = append(e.others, l.text)
		case <-timeout:
			require.FailNow(e.t, "nobody says "+word, "but %q", e.others)
		}
	}
}

// oneAtATime requires that no fence was used by two, and that they came in their order.
func (e *election) oneAtATime(want int) {
	e.t.Helper()
	leaders := e.store.LRange(e.t.Context(), "leaders", 0, -1).Val()
	require.GreaterOrEqual(e.t, len(leaders), want)
	require.True(e.t, slices.IsSorted(leaders))
	seen := map[string]bool{}
	for _, l := range leaders {
		fence, _, _ := strings.Cut(l, " ")
		require.False(e.t, seen[fence], "two leaders with the fence %s", fence)
		seen[fence] = true
	}
}

// TestLeaderIsReplacedWhenItsProcessDies measures the time from kill -9 until another leads.
func TestLeaderIsReplacedWhenItsProcessDies(t *testing.T) { // rule N4
	testscope.Long(t, "kills processes, and waits for what they held")
	t.Parallel()
	random := testseed.Rand(t)
	e, _ := newElection(t)
	kills := testscope.Scale(4, 100)
	var took []time.Duration
	for range kills {
		time.Sleep(time.Duration(random.Int64N(int64(leaseTTL))))
		killed := time.Now()
		dead := e.leader
		dead.kill()
		took = append(took, e.next().Sub(killed))
		dead.start()
	}
	e.oneAtATime(kills)
	slices.Sort(took)
	bound := leaseTTL + distributed.HeartbeatInterval(leaseTTL)
	t.Logf("%d kills: another led after %v (median), %v (max); T + H is %v; leaders deposed: %q", kills, took[kills/2], took[kills-1], bound, e.others)
	require.Less(t, took[kills-1], 3*bound, "of a machine that is busy with other tests")
}

// TestLeaderThatWasStoppedIsRefused: SIGSTOP past T. The woken one's next write has an older fence than the store has seen.
func TestLeaderThatWasStoppedIsRefused(t *testing.T) { // rule N4
	testscope.Long(t, "stops processes")
	t.Parallel()
	e, _ := newElection(t)
	stops := testscope.Scale(2, 20)
	for range stops {
		stopped, old := e.leader, e.fence
		stopped.signal(syscall.SIGSTOP)
		e.next()
		require.NotSame(t, stopped, e.leader)
		time.Sleep(leaseTTL / 4)
		stopped.signal(syscall.SIGCONT)
		l := e.says("refused")
		require.Same(t, stopped, l.from)
		require.Equal(t, fmt.Sprint("refused ", old), l.text)
	}
	e.oneAtATime(stops)
}

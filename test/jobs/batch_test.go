package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// The store of the batches: claim takes a fence that is larger than all before, and sell notes a batch as long as its claim
// stands. Fences have 19 digits, which compare like numbers.
var (
	claim = redis.NewScript(`
if ARGV[1] <= (redis.call('GET', 'fence') or '') then return 0 end
redis.call('SET', 'fence', ARGV[1])
return 1`)
	sell = redis.NewScript(`
if redis.call('GET', 'fence') ~= ARGV[1] then return 0 end
redis.call('RPUSH', 'sold', ARGV[1])
return 1`)
)

// batchThink is how long a batch takes: long enough to be hit in its middle.
const batchThink = 100 * time.Millisecond

var errRefused = errors.New("refused by the store")

// sellBatches has 8 callers buy again and again. It says what a batch does, with its fence and size, and what callers are told.
func sellBatches(l *wllock.Locker, store *redis.Client) {
	ctx := context.Background()
	say := func(what string, fence uint64, size int) { fmt.Println(what, fence, size) }
	buy := wllock.WrapBatch(l, "product", func(int) string { return "1000" }, func(ctx context.Context, batch []*wllock.Item[int, int]) error {
		held, _ := wllock.HeldFrom(ctx)
		fence, size := held.Fence(), len(batch)
		taken, err := claim.Run(context.Background(), store, nil, fence).Bool()
		must(err)
		if !taken {
			return errRefused
		}
		say("began", fence, size)
		time.Sleep(batchThink) // a process that is stopped here does not know
		taken, err = sell.Run(context.Background(), store, nil, fence).Bool()
		must(err)
		if !taken {
			say("refused", fence, size)
			return errRefused
		}
		return nil
	})
	for n := range 8 {
		go func() {
			for {
				if _, err := buy(ctx, n); errors.Is(err, wllock.ErrLeaseLost) {
					say("lost", 0, 1)
				}
			}
		}()
	}
	select {}
}

// saidBatch is a line of a child.
type saidBatch struct {
	line
	fence uint64
	size  int
}

// listen returns the next line with that word, of any child or, if only is not nil, of that one.
func listen(t *testing.T, lines <-chan line, word string, only *child) (s saidBatch) {
	t.Helper()
	for timeout := time.After(30 * time.Second); ; {
		select {
		case s.line = <-lines:
			var what string
			_, err := fmt.Sscan(s.text, &what, &s.fence, &s.size)
			require.NoError(t, err, s.text)
			if what == word && (only == nil || only == s.from) {
				return s
			}
		case <-timeout:
			require.FailNow(t, "nobody says "+word)
		}
	}
}

// inTheMiddle waits until a batch of several callers has just begun.
func inTheMiddle(t *testing.T, lines <-chan line) saidBatch {
	for {
		if s := listen(t, lines, "began", nil); s.size > 1 && time.Since(s.at) < batchThink/4 {
			return s
		}
	}
}

func startBatches(t *testing.T) (lines chan line, store *redis.Client) {
	server := redistest.Start(t)
	lines = make(chan line, 1000)
	for range 3 {
		startChild(t, lines, "batch", server.Addr, leaseTTL)
	}
	return lines, server.Client(func(o *redis.Options) { o.DB = 1 })
}

// soldInOrder requires that the store has taken each batch once, in the order of their fences.
func soldInOrder(t *testing.T, store *redis.Client) {
	sold := store.LRange(t.Context(), "sold", 0, -1).Val()
	require.NotEmpty(t, sold)
	require.True(t, slices.IsSorted(sold))
	require.Len(t, slices.Compact(slices.Clone(sold)), len(sold))
}

// TestBatchWhoseProcessIsKilled: the next instance goes on within T + H.
func TestBatchWhoseProcessIsKilled(t *testing.T) { // rule B4
	testscope.Long(t, "kills processes")
	t.Parallel()
	lines, store := startBatches(t)
	kills := testscope.Scale(3, 50)
	var took []time.Duration
	for range kills {
		dead := inTheMiddle(t, lines)
		killed := time.Now()
		dead.from.kill()
		next := listen(t, lines, "began", nil)
		for next.from == dead.from {
			next = listen(t, lines, "began", nil)
		}
		require.Greater(t, next.fence, dead.fence)
		took = append(took, next.at.Sub(killed))
		dead.from.start()
	}
	slices.Sort(took)
	bound := leaseTTL + distributed.HeartbeatInterval(leaseTTL)
	t.Logf("%d kills: the next batch began after %v (median), %v (max); T + H is %v", kills, took[kills/2], took[kills-1], bound)
	require.Less(t, took[kills-1], 3*bound, "of a machine that is busy with other tests")
	soldInOrder(t, store)
}

// TestBatchWhoseProcessIsStopped: SIGSTOP past T. The store refuses the late write, and every caller is told.
func TestBatchWhoseProcessIsStopped(t *testing.T) { // rule B9
	testscope.Long(t, "stops processes")
	t.Parallel()
	lines, store := startBatches(t)
	stops := testscope.Scale(2, 20)
	for range stops {
		stopped := inTheMiddle(t, lines)
		stopped.from.signal(syscall.SIGSTOP)
		for listen(t, lines, "began", nil).from == stopped.from { // what it said before
		}
		time.Sleep(leaseTTL / 4)
		stopped.from.signal(syscall.SIGCONT)
		late := listen(t, lines, "refused", stopped.from)
		require.Equal(t, stopped.fence, late.fence)
		for range stopped.size {
			listen(t, lines, "lost", stopped.from)
		}
	}
	soldInOrder(t, store)
}

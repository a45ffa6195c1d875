package memlock

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

// runs are what is kept of the runs under locks, of all systems together, the latest last.
type runs struct {
	mu  sync.Mutex
	all []distributed.Runs // guarded by mu
	at  time.Time          // guarded by mu; of the latest
}

var _ distributed.Recorder = (*Backend)(nil)

// Record implements distributed.Recorder.
func (b *Backend) Record(ctx context.Context, r distributed.Run) error {
	if err := r.Check(); err != nil {
		return err
	}
	if err := b.Ping(ctx); err != nil {
		return err
	}
	b.runs.mu.Lock()
	defer b.runs.mu.Unlock()
	kept := distributed.Runs{Last: r}
	if i := slices.IndexFunc(b.runs.all, func(one distributed.Runs) bool { return one.Last.Key == r.Key }); i >= 0 {
		kept = b.runs.all[i]
		b.runs.all = slices.Delete(b.runs.all, i, i+1)
	}
	if kept.Last.Fence <= r.Fence {
		kept.Last = r
	}
	if r.Result == distributed.RunOK && kept.Success.Fence <= r.Fence {
		kept.Success = r
	}
	b.runs.all, b.runs.at = append(b.runs.all, kept), time.Now()
	if more := len(b.runs.all) - distributed.MaxJobs; more > 0 {
		b.runs.all = slices.Delete(b.runs.all, 0, more)
	}
	return nil
}

// Runs implements distributed.Recorder.
func (b *Backend) Runs(ctx context.Context, prefix string) ([]distributed.Runs, error) {
	if err := b.Ping(ctx); err != nil {
		return nil, err
	}
	b.runs.mu.Lock()
	defer b.runs.mu.Unlock()
	if time.Since(b.runs.at) > distributed.RunMemory {
		b.runs.all = nil
	}
	all := slices.DeleteFunc(slices.Clone(b.runs.all), func(one distributed.Runs) bool { return !strings.HasPrefix(one.Last.Key, prefix) })
	slices.SortFunc(all, func(a, b distributed.Runs) int { return strings.Compare(a.Last.Key, b.Last.Key) })
	return all, nil
}

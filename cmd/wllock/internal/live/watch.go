package live

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/distributed"
)

const (
	// attention is how long reading goes on after the last View: longer than a page takes to be loaded again.
	attention = 30 * time.Second
	// firstView is how long a View waits for something to show: longer than silence, so that it tells of that.
	firstView = silence + 100*time.Millisecond
	// naming is how long a View waits for the names of waiters.
	naming = 300 * time.Millisecond
	// sortAfter is how long viewers share one sorting of the locks.
	sortAfter = time.Second
	// runsAfter is the pause between two readings of the runs.
	runsAfter = 10 * time.Second
)

// Watch reads locks, and how runs ended, once for all viewers, and only while there are any.
type Watch struct {
	reader *reader
	runs   func(context.Context) ([]distributed.Runs, error)
	looked chan struct{} // has room for one: there is a View

	mu      sync.Mutex
	ready   chan struct{}      // guarded by mu; closed when there is something to show
	frame   Frame              // guarded by mu; all locks
	sorted  time.Time          // guarded by mu; when frame was made
	jobs    []distributed.Runs // guarded by mu; as they are shown, those that failed first
	jobsErr error              // guarded by mu; of the last reading
}

// NewWatch returns a Watch. runs reads all runs that are kept. It is nil if the backend keeps none.
func NewWatch(i distributed.Inspector, o Options, runs func(context.Context) ([]distributed.Runs, error)) *Watch {
	return &Watch{reader: newReader(i, o), runs: runs, looked: make(chan struct{}, 1), ready: make(chan struct{})}
}

// Run reads until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	for {
		select {
		case <-w.looked:
			w.read(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// read reads until there was no View for a while.
func (w *Watch) read(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stop()
	select {
	case <-w.reader.changed: // of the last reading
	default:
	}
	reading.Go(func() { w.reader.run(ctx) })
	w.readRuns(ctx)
	ready := sync.OnceFunc(func() { close(w.ready) }) // only this goroutine writes it
	idle, again := time.NewTimer(attention), time.NewTicker(runsAfter)
	defer idle.Stop()
	defer again.Stop()
	for {
		select {
		case <-w.reader.changed:
			ready()
		case <-w.looked:
			idle.Reset(attention)
		case <-again.C:
			w.readRuns(ctx)
		case <-idle.C: // a View that comes now is the first one of the next reading
			ready()
			w.mu.Lock()
			w.ready = make(chan struct{})
			w.mu.Unlock()
			return
		case <-ctx.Done():
			return
		}
	}
}

func (w *Watch) readRuns(ctx context.Context) {
	if w.runs == nil {
		return
	}
	all, err := w.runs(ctx)
	for i := range all {
		all[i].Last.Key = w.reader.name(all[i].Last.Key)
	}
	slices.SortStableFunc(all, func(a, b distributed.Runs) int {
		return cmp.Or(cmp.Compare(failed(b), failed(a)), b.Last.Ended().Compare(a.Last.Ended()))
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil { // which is no fault of the backend
		return
	}
	if w.jobsErr = err; err == nil {
		w.jobs = all
	}
}

func failed(r distributed.Runs) int {
	if r.Last.Result == distributed.RunOK {
		return 0
	}
	return 1
}

// View is what one viewer wants to see.
type View struct {
	Frame                        // its Locks are the first ones
	MoreLocks int                // beside those
	Longest   *Lock              // the one that has been held for the longest time. Nil: none is held, or that is not known
	KeepsRuns bool               // the backend does
	Jobs      []distributed.Runs // the first ones, with keys as they are shown
	MoreJobs  int                // beside those
	Failed    int                // jobs whose last run failed
	JobsErr   error              // why the runs cannot be read
}

// View returns the locks and jobs whose names are wanted, the first n of each. It fails only when ctx ends.
func (w *Watch) View(ctx context.Context, wanted func(name string) bool, n int) (View, error) {
	w.await(ctx)
	v, err := w.view(ctx, wanted, n)
	if err != nil {
		return View{}, err
	}
	late := time.NewTimer(naming)
	defer late.Stop()
	for tries := 0; ; tries++ {
		round := w.reader.show(v.Locks, time.Now())
		if round == nil || tries == 2 { // the first round may have begun before
			return v, nil
		}
		select {
		case <-round:
		case <-late.C:
			return v, nil
		case <-ctx.Done():
			return v, nil
		}
	}
}

// await begins the reading, or keeps it up, and waits until there is something to show, but not for long.
func (w *Watch) await(ctx context.Context) {
	w.mu.Lock()
	ready := w.ready
	w.mu.Unlock()
	poke(w.looked)
	late := time.NewTimer(firstView)
	defer late.Stop()
	select {
	case <-ready:
	case <-late.C:
	case <-ctx.Done():
	}
}

func (w *Watch) view(ctx context.Context, wanted func(name string) bool, n int) (View, error) {
	frame, jobs, err := w.latest(time.Now())
	v := View{Frame: frame, KeepsRuns: w.runs != nil, JobsErr: err}
	v.Locks, v.Held, v.Waiting = nil, 0, 0
	for at, l := range frame.Locks {
		if at%1000 == 0 && ctx.Err() != nil { // to match so many names may take long
			return v, ctx.Err()
		}
		if !wanted(l.Name) {
			continue
		}
		v.Held++
		v.Waiting += show.Waiting(l.Inspection)
		if len(v.Locks) < n {
			v.Locks = append(v.Locks, l)
		}
		if !l.Since.IsZero() && (v.Longest == nil || l.Since.Before(v.Longest.Since)) {
			v.Longest = l
		}
	}
	for _, one := range jobs {
		if wanted(one.Last.Key) {
			v.Jobs = append(v.Jobs, one)
			v.Failed += failed(one)
		}
	}
	v.MoreLocks, v.MoreJobs = v.Held-len(v.Locks), max(len(v.Jobs)-n, 0)
	v.Jobs = v.Jobs[:len(v.Jobs)-v.MoreJobs]
	return v, nil
}

// latest returns all that is known, sorted not long ago.
func (w *Watch) latest(now time.Time) (f Frame, jobs []distributed.Runs, jobsErr error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.sorted) >= sortAfter {
		w.frame, w.sorted = w.reader.all(now), now
	}
	return w.frame, w.jobs, w.jobsErr
}

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// sweep compares the modes over one database: each is tried with each size of the pool, in several rounds.
type sweep struct {
	settings
	url    string
	system string        // the first part of every lock name
	office *sqlshop.Shop // fills the stock and asks for the result, with a connection of its own
	show   display
}

// compareModes is the whole comparison with -db.
func compareModes(ctx context.Context, s settings, stdout, stderr io.Writer) (status int, err error) {
	url, remove, err := databaseOf(s.DB)
	if err != nil {
		return statusFailed, err
	}
	defer remove()
	office, err := sqlshop.Open(url, 1, nil)
	if err != nil {
		return statusFailed, err
	}
	defer office.Close()
	if err := office.Connect(ctx); err != nil {
		return statusFailed, err
	}
	fmt.Fprintf(stderr, "flashsale: drops and creates its own tables %s and %s in %s, and touches no other\n",
		sqlshop.StockTable, sqlshop.OrdersTable, sqlshop.Shown(s.DB))
	if err := errors.Join(office.Create(ctx), migrateBackend(ctx, s.Backend)); err != nil {
		return statusFailed, err
	}
	w := &sweep{settings: s, url: url, system: "flashsale-" + rand.Text()[:8], office: office, show: newDisplay(stderr)}
	tried, err := w.tryAll(ctx)
	if err != nil {
		return statusFailed, err
	}
	return concludeModes(s, tried, stdout, stderr), nil
}

// databaseOf gives SQLite a file where the user named none. remove leaves nothing of it behind.
func databaseOf(url string) (withFile string, remove func(), err error) {
	if url != temporary {
		return url, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "flashsale-")
	if err != nil {
		return "", nil, err
	}
	return "sqlite:" + filepath.Join(dir, "shop.db"), func() { _ = os.RemoveAll(dir) }, nil
}

// trial is a mode with a pool of that size.
type trial struct {
	mode, pool int
}

// tryAll returns the median round of every trial. The rounds are the outer loop, so that a machine that is busy for a
// while slows down a round of every trial and not all rounds of one.
func (w *sweep) tryAll(ctx context.Context) ([]modeReport, error) {
	played := map[trial][]modeReport{}
	trials := w.trials()
	for range w.Rounds {
		for _, t := range trials {
			r, err := w.play(ctx, t)
			if err != nil {
				return nil, fmt.Errorf("mode %s, pool %d: %w", modes[t.mode].id, t.pool, err)
			}
			played[t] = append(played[t], r)
		}
	}
	var tried []modeReport
	for _, t := range trials {
		tried = append(tried, median(played[t]))
	}
	return tried, nil
}

func (w *sweep) trials() (all []trial) {
	for _, name := range w.Modes {
		for _, pool := range w.Pools {
			all = append(all, trial{mode: modeIndex(name), pool: pool})
		}
	}
	return all
}

// play fills the stock, sells, and asks the database for the result.
func (w *sweep) play(ctx context.Context, t trial) (modeReport, error) {
	r := modes[t.mode]
	for product, qty := range map[string]int{r.id: w.Stock, otherProduct: 1} {
		if err := w.office.Stock(ctx, product, qty); err != nil {
			return modeReport{}, err
		}
	}
	var before, after time.Duration
	var known bool
	m := &meter{started: func() { before, known = w.office.ServerCPU(ctx) }}
	shown := r
	shown.title = fmt.Sprintf("%s, pool %d", r.id, t.pool)
	stop := w.show.watch(shown, w.Instances*w.Buyers, m)
	seen, err := w.sell(ctx, t, m)
	stop()
	if err != nil {
		return modeReport{}, err
	}
	if known {
		after, known = w.office.ServerCPU(ctx)
	}
	a, err := w.office.Audit(ctx, r.id)
	rep := newModeReport(r, t.pool, w.Stock, a, seen)
	if known {
		rep.spent(after - before)
	}
	return rep, err
}

// sell serves all buyers, in this process or in children.
func (w *sweep) sell(ctx context.Context, t trial, m *meter) (result, error) {
	work := task{Settings: w.settings, System: w.system, Backend: w.Backend, DB: w.url, Pool: t.pool, Round: t.mode}
	if w.Procs > 1 {
		return runProcs(ctx, work, m)
	}
	c, r, err := work.open(ctx)
	if err != nil {
		return result{}, err
	}
	defer c.close()
	m.start()
	return c.run(ctx, r, m)
}

// median returns the round with the median of orders per second: a whole round, so that its columns belong together. A round
// that broke its promise comes before any other.
func median(rounds []modeReport) modeReport {
	if broken := slices.IndexFunc(rounds, func(r modeReport) bool { return !r.kept() }); broken >= 0 {
		return rounds[broken]
	}
	slices.SortFunc(rounds, func(a, b modeReport) int { return cmp.Compare(a.OrdersPerSecond, b.OrdersPerSecond) })
	return rounds[len(rounds)/2]
}

// best returns the best trial of each mode; one that broke its promise comes first here as well.
func best(tried []modeReport) (found []modeReport) {
	for len(tried) > 0 {
		same := 1
		for same < len(tried) && tried[same].Mode == tried[0].Mode {
			same++
		}
		found = append(found, slices.MinFunc(tried[:same], compareTrials(tried[:same])))
		tried = tried[same:]
	}
	return found
}

// noise is how far orders per second may be apart and yet be the same, as a share: measured again, they differ by as much.
const noise = 0.1

// compareTrials orders the trials of a mode: by orders per second, and where these are the same by what others have to wait.
func compareTrials(trials []modeReport) func(a, b modeReport) int {
	most := 0.0
	for _, r := range trials {
		most = max(most, r.OrdersPerSecond)
	}
	rank := func(r modeReport) (broken, slow int) {
		if r.kept() {
			broken = 1
		}
		if r.OrdersPerSecond < most*(1-noise) {
			slow = 1
		}
		return broken, slow
	}
	return func(a, b modeReport) int {
		brokenA, slowA := rank(a)
		brokenB, slowB := rank(b)
		return cmp.Or(cmp.Compare(brokenA, brokenB), cmp.Compare(slowA, slowB), cmp.Compare(a.OthersP99, b.OthersP99))
	}
}

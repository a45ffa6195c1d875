package sale

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// contest compares the rounds, or with -db the modes, over one database. A mode is tried with each size of the pool, in several rounds.
type contest struct {
	Settings
	office *sqlshop.Shop // fills the stock and asks for the result, with a connection of its own
	stderr io.Writer
}

// compare is the whole comparison.
func compare(ctx context.Context, s Settings, stdout, stderr io.Writer) (status int, err error) {
	office, err := sqlshop.Open(cmp.Or(s.DB, sqlshop.Temporary), 1, nil)
	if err != nil {
		return 0, err
	}
	defer office.Close()
	if err := office.Connect(ctx); err != nil {
		return 0, err
	}
	if s.DB != "" {
		fmt.Fprintf(stderr, "flashsale: drops and creates its own tables %s, and touches no other\n", sqlshop.Tables(s.DB))
	}
	if err := errors.Join(office.Create(ctx), s.PrepareBackend(ctx)); err != nil {
		return 0, err
	}
	c := &contest{Settings: s, office: office, stderr: stderr}
	tried, err := c.tryAll(ctx)
	if err != nil {
		return 0, err
	}
	return s.conclude(tried, stdout, stderr), nil
}

// NewSystem is unique, so that two sales do not interfere on one lock service.
func NewSystem() string { return "flashsale-" + rand.Text()[:8] }

// trial is a way to sell with a pool of that size.
type trial struct {
	way, title string
	pool       int
}

// roundPool is the pool of rounds: SQLite has one writer at a time, and a queue in front of one connection is fair.
const roundPool = 1

func (c *contest) trials() (all []trial) {
	if c.Modes == nil {
		for _, w := range Rounds {
			all = append(all, trial{w.ID, w.Title, roundPool})
		}
	}
	for _, id := range c.Modes {
		for _, pool := range c.Pools {
			all = append(all, trial{id, fmt.Sprintf("%s, pool %d", id, pool), pool})
		}
	}
	return all
}

// tryAll returns the median round of every trial. The rounds are the outer loop, so that a machine that is busy for a
// while slows down a round of every trial and not all rounds of one.
func (c *contest) tryAll(ctx context.Context) (tried []Report, err error) {
	played := map[trial][]Report{}
	for range max(1, c.Rounds) {
		for _, t := range c.trials() {
			r, err := c.play(ctx, t)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", t.title, err)
			}
			played[t] = append(played[t], r)
		}
	}
	for _, t := range c.trials() {
		tried = append(tried, median(played[t]))
	}
	return tried, nil
}

// play fills the stock, sells, and asks the database for the result.
func (c *contest) play(ctx context.Context, t trial) (Report, error) {
	for product, qty := range map[string]int{t.way: c.Stock, otherProduct: 1} {
		if err := c.office.Stock(ctx, product, qty); err != nil {
			return Report{}, err
		}
	}
	var before time.Duration
	began := time.Now()
	seen, err := c.sell(ctx, t, func() { before, _ = c.office.ServerCPU() })
	if err != nil {
		return Report{}, err
	}
	fmt.Fprintf(c.stderr, "%-9s %d of %d buyers answered, %d pieces sold, %.1f s\n",
		t.title, seen.Answered(), c.Instances*c.Buyers, seen.Bought, time.Since(began).Seconds())
	after, known := c.office.ServerCPU()
	a, err := c.office.Audit(ctx, t.way)
	r := NewReport(wayOf(t.way), c.Stock, a, seen)
	if c.Modes != nil {
		r.Pool = t.pool
	}
	if known && r.Sold > 0 {
		perOrder := milliseconds(after-before) / float64(r.Sold)
		r.CPU = &perOrder
	}
	return r, err
}

// sell serves all buyers, in this process or in children. It calls ready when nobody has bought.
func (c *contest) sell(ctx context.Context, t trial, ready func()) (Result, error) {
	stall := Stall{Way: t.way, URL: c.office.URL}
	task := Task{Settings: c.Settings, System: NewSystem(), Stalls: []Stall{stall}, Pool: t.pool, Stride: c.Procs}
	if c.Procs > 1 {
		return playTogether(ctx, task, ready)
	}
	one := &crew{Task: task, Stall: stall, way: wayOf(t.way), coming: ctx}
	defer one.close()
	if err := one.open(ctx); err != nil {
		return Result{}, err
	}
	ready()
	return one.run(ctx)
}

// median returns the round with the median of orders per second: a whole round, so that its columns belong together. A round
// that broke its promise comes before any other.
func median(rounds []Report) Report {
	if broken := slices.IndexFunc(rounds, func(r Report) bool { return !r.kept() }); broken >= 0 {
		return rounds[broken]
	}
	slices.SortFunc(rounds, func(a, b Report) int { return cmp.Compare(a.OrdersPerSecond, b.OrdersPerSecond) })
	return rounds[len(rounds)/2]
}

// noise is how far orders per second may be apart and yet be the same, as a share: measured again, they differ by as much.
const noise = 0.1

// best returns the best trial of each way, in their order: that with most orders per second, and where these are the same, for which others
// wait least. One that broke its promise comes first here as well.
func best(tried []Report) (found []Report) {
	most := map[string]float64{}
	for _, r := range tried {
		most[r.Round] = max(most[r.Round], r.OrdersPerSecond)
	}
	rank := func(r Report) float64 { // less is better
		switch {
		case !r.kept():
			return -1
		case r.OrdersPerSecond >= most[r.Round]*(1-noise):
			return r.OthersP99
		}
		return math.Inf(1)
	}
	for _, r := range tried {
		last := len(found) - 1
		if last < 0 || found[last].Round != r.Round {
			found = append(found, r)
		} else if rank(r) < rank(found[last]) {
			found[last] = r
		}
	}
	return found
}

// conclude prints the best trial of each way, and returns an exit status that says whether those that have to kept their promise.
func (s Settings) conclude(tried []Report, stdout, stderr io.Writer) int {
	status := StatusOK
	for _, r := range tried {
		name := r.Round
		if r.Pool > 0 {
			name = fmt.Sprintf("%s, pool %d", r.Round, r.Pool)
		}
		if r.Failure != "" {
			fmt.Fprintf(stderr, "flashsale: %s: %d failed, the first with: %s\n", name, r.Failed+r.Away, r.Failure)
		}
		if s.Modes == nil && !r.way.fenced {
			continue // a round to compare with
		}
		if !r.kept() {
			fmt.Fprintf(stderr, "flashsale: %s did not keep its promise: %d pieces oversold, %d in stock besides %d orders of %d, "+
				"%d buyers told that they bought, %d fences out of order\n", name, r.Twice, r.Left, r.Sold, s.Stock, r.Told, r.FenceViolations)
		}
		if !r.kept() || r.Failed+r.Away > 0 {
			status = StatusFailed
		}
	}
	s.Backend = ""
	reports, summary := best(tried), map[string]any{"settings": s, "ok": status == StatusOK}
	if s.Modes == nil {
		summary["rounds"], summary["verdict"] = reports, Verdict(reports)
	} else {
		summary["modes"], summary["tried"] = reports, tried
	}
	switch {
	case s.JSON:
		out := json.NewEncoder(stdout)
		out.SetIndent("", "  ")
		_ = out.Encode(summary)
	case s.Modes == nil:
		printTable(stdout, roundColumns, reports, legend+aboutLink(s.RTT)+"\n"+wrapped(Verdict(reports))+"\n")
	case slices.ContainsFunc(reports, func(r Report) bool { return r.CPU != nil }):
		printTable(stdout, append(slices.Clone(modeColumns), cpuColumn), reports, modeLegend+"db cpu: of the database's server, per piece sold.\n"+advice)
	default:
		printTable(stdout, modeColumns, reports, modeLegend+advice)
	}
	return status
}

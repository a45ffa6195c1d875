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
	return c.conclude(tried, stdout), nil
}

// NewSystem is unique, so that two sales do not interfere on one lock service.
func NewSystem() string { return "flashsale-" + rand.Text()[:8] }

func title(way string, pool int) string {
	if pool == 0 {
		return way
	}
	return fmt.Sprintf("%s, pool %d", way, pool)
}

// tryAll returns the median round of every way with every pool; the rounds of the demonstration have no pools to compare, which is 0. The
// rounds are the outer loop, so that a machine that is busy for a while slows down a round of every trial and not all rounds of one.
func (c *contest) tryAll(ctx context.Context) (tried []Report, err error) {
	ways, pools := c.Modes, c.Pools
	if c.Modes == nil {
		ways, pools = titles(Rounds), []int{0}
	}
	played := make([][]Report, len(ways)*len(pools))
	for range max(1, c.Rounds) {
		for i := range played {
			way, pool := ways[i/len(pools)], pools[i%len(pools)]
			r, err := c.play(ctx, wayOf(way), pool)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", title(way, pool), err)
			}
			played[i] = append(played[i], r)
		}
	}
	for _, rounds := range played {
		tried = append(tried, median(rounds))
	}
	return tried, nil
}

// play fills the stock, sells, and asks the database for the result.
func (c *contest) play(ctx context.Context, w Way, pool int) (Report, error) {
	err := errors.Join(c.office.Stock(ctx, w.Title, c.Stock), c.office.Stock(ctx, otherProduct, 1))
	if err != nil {
		return Report{}, err
	}
	var before time.Duration
	began := time.Now()
	seen, err := c.sell(ctx, w, pool, func() { before, _ = c.office.ServerCPU() })
	if err != nil {
		return Report{}, err
	}
	fmt.Fprintf(c.stderr, "%-9s %d of %d buyers answered, %d pieces sold, %.1f s\n",
		title(w.Title, pool), seen.Answered(), c.Instances*c.Buyers, seen.Bought, time.Since(began).Seconds())
	after, known := c.office.ServerCPU()
	a, err := c.office.Audit(ctx, w.Title)
	r := NewReport(w, c.Stock, a, seen)
	r.Pool = pool
	if known && r.Sold > 0 {
		perOrder := milliseconds(after-before) / float64(r.Sold)
		r.CPU = &perOrder
	}
	return r, err
}

// sell serves all buyers, in this process or in children. It calls ready when nobody has bought.
func (c *contest) sell(ctx context.Context, w Way, pool int, ready func()) (Result, error) {
	stall := Stall{Way: w.Title, URL: c.office.URL}
	pool = max(1, pool) // one connection for a round: SQLite has one writer at a time, and a queue in front of it is fair
	task := Task{Settings: c.Settings, System: NewSystem(), Stalls: []Stall{stall}, Pool: pool, Stride: c.Procs, coming: ctx}
	if c.Procs > 1 {
		return playTogether(ctx, task, ready)
	}
	one := &crew{Task: task, Stall: stall, way: w}
	defer one.close()
	if err := one.open(ctx); err != nil {
		return Result{}, err
	}
	ready()
	err := one.run(ctx)
	return one.take(), err
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

// best returns of each way, of which pools trials follow each other, the best one: that with most orders per second, and where these are
// the same within a tenth, as far as they differ when measured again, for which others wait least. One that broke its promise comes first
// here as well.
func best(tried []Report, pools int) (found []Report) {
	for same := range slices.Chunk(tried, pools) {
		most := slices.MaxFunc(same, func(a, b Report) int { return cmp.Compare(a.OrdersPerSecond, b.OrdersPerSecond) })
		rank := func(r Report) float64 { // less is better
			switch {
			case !r.kept():
				return -1
			case r.OrdersPerSecond < most.OrdersPerSecond*0.9:
				return math.Inf(1)
			}
			return r.OthersP99
		}
		found = append(found, slices.MinFunc(same, func(a, b Report) int { return cmp.Compare(rank(a), rank(b)) }))
	}
	return found
}

// conclude prints the best trial of each way, and returns an exit status that says whether those that have to kept their promise.
func (c *contest) conclude(tried []Report, stdout io.Writer) int {
	status := StatusOK
	for _, r := range tried {
		name := title(r.Round, r.Pool)
		if r.Failure != "" {
			fmt.Fprintf(c.stderr, "flashsale: %s: %d failed, the first with: %s\n", name, r.Failed+r.Away, r.Failure)
		}
		if c.Modes == nil && !r.way.fenced {
			continue // a round to compare with
		}
		if !r.kept() {
			fmt.Fprintf(c.stderr, "flashsale: %s did not keep its promise: %d pieces oversold, %d in stock besides %d orders of %d, "+
				"%d buyers told that they bought, %d fences out of order\n", name, r.Twice, r.Left, r.Sold, c.Stock, r.Told, r.FenceViolations)
		}
		if !r.kept() || r.Failed+r.Away > 0 {
			status = StatusFailed
		}
	}
	c.Backend = "" // it may have a password
	reports, summary := best(tried, max(1, len(c.Pools))), map[string]any{"settings": c.Settings, "ok": status == StatusOK}
	if c.Modes == nil {
		summary["rounds"], summary["verdict"] = reports, Verdict(reports)
	} else {
		summary["modes"], summary["tried"] = reports, tried
	}
	switch {
	case c.JSON:
		out := json.NewEncoder(stdout)
		out.SetIndent("", "  ")
		_ = out.Encode(summary)
	case c.Modes != nil:
		printModes(stdout, reports)
	default:
		printRounds(stdout, reports, c.RTT)
	}
	return status
}

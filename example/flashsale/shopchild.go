package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
)

// A shop of the page (stage.go) is a child process that lives until it is killed, or its standard input ends. It sells in all
// rounds at once, side by side. They talk in JSON:
//
//	parent  order ──▶                 order ──▶ ...
//	child             news ──▶ news ──▶

// shopChild is the value of childVariable for a shop.
const shopChild = "shop"

// order is what a shop is told: a sale begins or ends, or the threshold has changed.
type order struct {
	Open      *opening `json:"open,omitempty"`
	Close     bool     `json:"close,omitempty"` // nobody comes any more; those inside are answered
	Threshold *int     `json:"threshold,omitempty"`
}

// opening is a sale as a shop knows it. The URL is not part of the settings.
type opening struct {
	Sale     int           `json:"sale"`
	Settings settings      `json:"settings"`
	Backend  string        `json:"backend"`
	System   string        `json:"system"`
	Files    []string      `json:"files"` // a database per round
	Shop     int           `json:"shop"`  // from 0
	Late     time.Duration `json:"late_ns"`

	coming context.Context // its end is that of the arrivals
}

// news is what a shop reports while a sale lasts.
type news struct {
	Sale   int        `json:"sale"`
	Rounds []standing `json:"rounds"`
	Away   bool       `json:"away,omitempty"` // its Locker cannot reach the lock service
	Done   bool       `json:"done,omitempty"` // the last news of a sale: all buyers of this shop have been answered
}

// standing is a round as one process knows it: totals, and the waits since its last news.
type standing struct {
	Arrived  int64           `json:"arrived"`
	Bought   int             `json:"bought"`
	SoldOut  int             `json:"sold_out"`
	Refused  int             `json:"refused"`
	Failed   int             `json:"failed"`
	Requests int64           `json:"requests"`
	Waits    []time.Duration `json:"waits_ns,omitempty"`
	Failure  string          `json:"failure,omitempty"`
}

func (s standing) answered() int64 { return int64(s.Bought + s.SoldOut + s.Refused + s.Failed) }

// newsInterval is how often a shop reports.
const newsInterval = 100 * time.Millisecond

// counter is one round in a shop.
type counter struct {
	tally *tally
	way   *link
}

// take returns the standing and forgets the waits, which the parent collects.
func (c *counter) take() standing {
	c.tally.mu.Lock()
	defer c.tally.mu.Unlock()
	r := &c.tally.result
	s := standing{
		Arrived: c.tally.meter.arrived.Load(), Bought: r.Bought, SoldOut: r.SoldOut, Refused: r.Refused, Failed: r.Failed,
		Waits: r.Waits, Failure: r.Failure, Requests: c.way.requests.Load(),
	}
	r.Waits = nil
	return s
}

// shopProcess is the child.
type shopProcess struct {
	out   *messenger
	sales sync.WaitGroup

	mu        sync.Mutex
	lockers   []*wllock.Locker // guarded by mu: one per round of the sale that goes on that has one
	threshold int              // guarded by mu
	noMore    func()           // guarded by mu: ends the arrivals; nil: no sale yet
}

// serveShop is the main program of a shop.
func serveShop(ctx context.Context, stdin io.Reader, stdout io.Writer) int {
	p := &shopProcess{out: &messenger{out: json.NewEncoder(stdout)}}
	ctx, cancel := context.WithCancel(ctx)
	defer p.sales.Wait()
	defer cancel()
	for in := json.NewDecoder(stdin); ; {
		var o order
		if in.Decode(&o) != nil { // the parent has ended, or wants this process to
			return 0
		}
		if o.Threshold != nil {
			p.setThreshold(*o.Threshold)
		}
		if o.Close {
			p.close()
		}
		if o.Open != nil {
			o.Open.coming = p.open(ctx)
			p.sales.Go(func() { p.sell(ctx, *o.Open) })
		}
	}
}

// open returns the context of a new sale's arrivals.
func (p *shopProcess) open(ctx context.Context) (coming context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	coming, p.noMore = context.WithCancel(ctx)
	return coming
}

func (p *shopProcess) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.noMore != nil {
		p.noMore()
	}
}

func (p *shopProcess) setThreshold(n int) {
	p.mu.Lock()
	p.threshold = n
	lockers := slices.Clone(p.lockers)
	p.mu.Unlock()
	for _, l := range lockers {
		_ = l.SetThreshold("product", n) // fails for no number that the page lets through
	}
}

// use makes the Locker one of those that setThreshold means, until the sale has ended.
func (p *shopProcess) use(l *wllock.Locker) {
	p.mu.Lock()
	p.lockers = append(p.lockers, l)
	n := p.threshold
	p.mu.Unlock()
	_ = l.SetThreshold("product", n)
}

// forget lets go of the Lockers of a sale that has ended.
func (p *shopProcess) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lockers = nil
}

// away reports whether a Locker knows that it cannot reach the lock service.
func (p *shopProcess) away() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.lockers, func(l *wllock.Locker) bool { return !l.Health().Available })
}

// sell serves the buyers of a sale, in all rounds at once, and reports until all are answered.
func (p *shopProcess) sell(ctx context.Context, o opening) {
	began := time.Now()
	var open sync.WaitGroup
	counters := make([]*counter, len(rounds))
	for i, r := range rounds {
		counters[i] = &counter{tally: &tally{start: began, meter: new(meter)}, way: &link{Backend: nothingBehind{}, rtt: o.Settings.RTT}}
		open.Go(func() {
			if err := p.play(ctx, o, r, o.Files[i], counters[i]); err != nil {
				counters[i].tally.fail(err)
			}
		})
	}
	report := func(done bool) {
		n := news{Sale: o.Sale, Away: p.away(), Done: done}
		for _, c := range counters {
			n.Rounds = append(n.Rounds, c.take())
		}
		p.out.say(n)
	}
	stop := every(newsInterval, func() { report(false) })
	open.Wait()
	stop()
	p.forget()
	report(true)
}

// nothingBehind is the lock service of a round without a lock.
type nothingBehind struct{ distributed.Backend }

// play is one round of a sale in this shop.
func (p *shopProcess) play(ctx context.Context, o opening, r round, file string, c *counter) error {
	shop, err := openShop(file)
	if err != nil {
		return err
	}
	defer shop.Close()
	shop.thinking = o.Settings.Think
	i := &instance{settings: o.Settings, system: o.System, product: r.id, shop: shop, late: o.Late, coming: o.coming}
	if r.locked {
		if c.way.Backend, err = openBackend(o.Backend); err != nil {
			return err
		}
		defer func() { _ = c.way.Close() }()
		i.backend = c.way.backend()
	}
	if r.fenced {
		i.opened = p.use
	}
	if err := i.serve(ctx, o.Shop, r, c.tally); err != nil {
		return fmt.Errorf("shop %d: %w", o.Shop+1, err)
	}
	return nil
}

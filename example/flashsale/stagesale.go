package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wllock/wllock/example/flashsale/internal/face"
)

// stageSale is a sale on the stage: all rounds at once, each with a database of its own. The goroutine of the stage owns it, but for
// the databases, which a helper looks at.
type stageSale struct {
	number int
	plan   face.Plan
	system string // the first part of every lock name
	began  time.Time
	ended  time.Time // zero: it goes on
	closed bool      // nobody comes any more
	over   chan struct{}
	files  []string
	shops  []*shop  // a database per round
	remove []func() // closes a database and removes it

	parts   []*part // of every process that ever took part
	tracks  []track // a round each
	samples []reading
	outages []outage
	noticed bool // a shop knows of the outage that goes on
	verdict string
}

// part is what a process has done in a sale.
type part struct {
	standings []standing
	away      bool
	done      bool
	lost      []int64 // per round: buyers that were inside when the process was killed; nil: it was not
}

// track is what the stage knows of a round besides what shops report.
type track struct {
	audit audit
	waits []time.Duration // sorted
	last  time.Duration   // since the beginning: when the number of pieces sold was last seen to grow
}

// reading is how many pieces each round had sold by then.
type reading struct {
	at   time.Duration
	sold []int
}

// outage is a time without lock service.
type outage struct{ from, to time.Duration } // to 0: it goes on

const (
	// sampleInterval is how often the databases are asked.
	sampleInterval = 200 * time.Millisecond
	// stallTime without a sale is worth a line in the log: long beside a sample, and beside a busy machine's pauses.
	stallTime = 800 * time.Millisecond
)

func (sc *scene) selling() bool { return sc.sale != nil && sc.sale.ended.IsZero() }

// startSale begins a sale as soon as its databases are there.
func (sc *scene) startSale(p face.Plan) error {
	switch {
	case sc.problem != "":
		return errors.New(sc.problem)
	case sc.opening || sc.selling():
		return errors.New("a sale is going on: one at a time")
	case !slices.ContainsFunc(sc.shops, (*shopSeat).up):
		return errors.New("all shops are down: restart one")
	}
	sc.opening = true
	sc.sales++
	p.Buyers = max(1, p.Buyers/pageShops) * pageShops
	s, st := &stageSale{number: sc.sales, plan: p, over: make(chan struct{})}, sc.stage
	st.help(func() {
		err := s.open(st.ctx)
		err = st.ask(func(sc *scene) error { return sc.begin(s, err) }) // and has begun when watch looks at it
		if errors.Is(err, errEnding) {
			s.close()
		}
		if err == nil {
			s.watch(st)
		}
	})
	return nil
}

// open makes the databases.
func (s *stageSale) open(ctx context.Context) error {
	s.system = "flashsale-" + rand.Text()[:8] // unique, so that two sales do not interfere
	s.tracks = make([]track, len(rounds))
	for i, r := range rounds {
		shop, file, remove, err := createShop(ctx)
		if err != nil {
			return err
		}
		s.shops, s.files, s.remove = append(s.shops, shop), append(s.files, file), append(s.remove, remove)
		s.tracks[i].audit.Left = s.plan.Stock
		if err := shop.Stock(ctx, r.id, s.plan.Stock); err != nil {
			return err
		}
	}
	return nil
}

// close removes the databases. The processes that have them open do no harm: the files are gone when they close them.
func (s *stageSale) close() {
	for _, remove := range s.remove {
		remove()
	}
	s.remove = nil
}

// begin lets the shops sell, unless the databases could not be made.
func (sc *scene) begin(s *stageSale, err error) error {
	sc.opening = false
	if err != nil {
		sc.problem = err.Error()
		s.close()
		return err
	}
	if sc.sale != nil {
		sc.sale.close()
	}
	sc.sale, sc.events = s, nil
	s.began = time.Now()
	sc.say("Sale %d: %d pieces. %d buyers come to %d shops within %d s, in each of the %d rounds. Threshold %d, round trip to the lock service %v and more.",
		s.number, s.plan.Stock, s.plan.Buyers, pageShops, s.plan.Seconds, len(rounds), sc.threshold, sc.stage.settings.RTT)
	if !sc.service.up {
		s.interrupted()
		sc.say("The lock service is down.")
	}
	for _, seat := range sc.shops {
		if seat.up() {
			_ = sc.join(seat) // a shop that does not read has ended, and will be heard of
		}
	}
	return nil
}

// endSale lets nobody in any more. The sale is over when those inside are answered.
func (sc *scene) endSale() error {
	if !sc.selling() || sc.sale.closed {
		return errors.New("no sale goes on")
	}
	sc.sale.closed = true
	sc.say("You ended the sale: nobody comes any more, and those inside are answered.")
	for _, seat := range sc.shops {
		if seat.part != nil {
			_ = sc.order(seat, order{Close: true}) // a shop that does not read has ended, and will be heard of
		}
	}
	sc.endSaleIfDone()
	return nil
}

// join lets a shop take part, from now on.
func (sc *scene) join(seat *shopSeat) error {
	s, set := sc.sale, sc.stage.settings
	set.Instances, set.Buyers, set.Stock, set.Threshold = pageShops, s.plan.Buyers/pageShops, s.plan.Stock, sc.threshold
	set.Ramp, set.Think, set.TTL = time.Duration(s.plan.Seconds)*time.Second, pageThinking, pageTTL
	o := opening{Sale: s.number, Settings: set, Backend: sc.service.url, System: s.system, Files: s.files, Shop: seat.n}
	if len(s.samples) > 0 { // the buyers that would have come before have gone elsewhere
		o.Late = time.Since(s.began)
	}
	seat.part = &part{standings: make([]standing, len(rounds))}
	s.parts = append(s.parts, seat.part)
	return sc.order(seat, order{Open: &o})
}

// hear takes in what a shop reports.
func (sc *scene) hear(seat *shopSeat, n news) {
	if seat.part == nil || n.Sale != sc.sale.number {
		return
	}
	s := sc.sale
	for i, r := range n.Rounds {
		s.tracks[i].waits = append(s.tracks[i].waits, r.Waits...)
		slices.Sort(s.tracks[i].waits)
	}
	seat.part.standings, seat.part.done = n.Rounds, n.Done
	if !n.Done {
		sc.hearAway(seat, n.Away)
	}
	sc.endSaleIfDone()
}

// hearAway says when the shops learn that the lock service is down, and when all know that it is back.
func (sc *scene) hearAway(seat *shopSeat, away bool) {
	seat.part.away = away
	s := sc.sale
	switch {
	case away && !s.noticed && !sc.service.up:
		s.noticed = true
		sc.say("wllock knows it in shop %d, %s after: buyers are told at once to try again, instead of waiting for nothing.",
			seat.n+1, seconds(time.Since(sc.service.since)))
	case s.noticed && sc.service.up && !slices.ContainsFunc(sc.shops, func(o *shopSeat) bool { return o.part != nil && o.part.away }):
		s.noticed = false
		sc.say("wllock asks the lock service again in all shops.")
	}
}

// interrupted notes that the lock service is down from now on.
func (s *stageSale) interrupted() {
	s.outages = append(s.outages, outage{from: time.Since(s.began)})
}

// resumed notes that it is back.
func (s *stageSale) resumed() {
	if last := len(s.outages) - 1; last >= 0 && s.outages[last].to == 0 {
		s.outages[last].to = time.Since(s.began)
	}
}

// lose notes the buyers that were inside.
func (p *part) lose() (lost int64) {
	for _, r := range p.standings {
		p.lost = append(p.lost, r.Arrived-r.answered())
		lost += r.Arrived - r.answered()
	}
	return lost
}

// endSaleIfDone ends the sale when all shops are done. For one that is down it waits as long as buyers would come: somebody may
// restart it.
func (sc *scene) endSaleIfDone() {
	if !sc.selling() {
		return
	}
	s := sc.sale
	waiting := !s.closed && time.Since(s.began) < time.Duration(s.plan.Seconds)*time.Second
	for _, seat := range sc.shops {
		switch {
		case seat.up() && seat.part != nil && !seat.part.done, !seat.up() && waiting:
			return
		}
	}
	select {
	case <-s.over:
	default:
		close(s.over)
	}
}

// watch asks the databases until the sale is over, and once more.
func (s *stageSale) watch(st *stage) {
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	for over := false; !over; {
		select {
		case <-ticker.C:
		case <-s.over:
			over = true
		case <-st.ctx.Done():
			return
		}
		audits, err := s.auditAll(st.ctx)
		at := time.Since(s.began)
		st.tell(func(sc *scene) {
			if err != nil {
				sc.problem = err.Error()
			} else {
				sc.sample(audits, at)
			}
			sc.endSaleIfDone()
			if over {
				sc.finish()
			}
		})
	}
}

func (s *stageSale) auditAll(ctx context.Context) (all []audit, err error) {
	for i, r := range rounds {
		a, err := s.shops[i].Audit(ctx, r.id)
		if err != nil {
			return nil, fmt.Errorf("look at the database of %q: %w", r.title, err)
		}
		all = append(all, a)
	}
	return all, nil
}

// sample takes in what the databases say, and says when a round that stood still sells again.
func (sc *scene) sample(audits []audit, at time.Duration) {
	s, now := sc.sale, reading{at: at}
	for i, a := range audits {
		t := &s.tracks[i]
		if a.Sold > t.audit.Sold {
			if still := at - t.last; rounds[i].locked && still > stallTime && t.audit.Sold > 0 {
				sc.say("%s sells again: it had sold nothing for %s.", rounds[i].title, seconds(still))
			}
			t.last = at
		}
		t.audit = a
		now.sold = append(now.sold, a.Sold)
	}
	s.samples = append(s.samples, now)
}

// finish says what came of it.
func (sc *scene) finish() {
	s := sc.sale
	s.resumed()
	for _, seat := range sc.shops {
		seat.part = nil
	}
	reports := s.reports()
	for _, r := range reports {
		text := fmt.Sprintf("%s sold %d of %d pieces", r.Round, r.Sold, s.plan.Stock)
		switch {
		case r.Oversold > 0:
			text += fmt.Sprintf(": %d that do not exist", r.Oversold)
		case r.kept():
			text += ", each to one buyer"
		default:
			text += fmt.Sprintf(", %d of them twice: the stock says that %d are left", r.Sold+r.Left-s.plan.Stock, r.Left)
		}
		sc.say("%s.", text)
		if r.Failure != "" {
			sc.say("%s failed %d buyers, the first with: %s", r.Round, r.Failed, r.Failure)
		}
	}
	s.verdict, s.ended = verdict(reports), time.Now()
	s.close()
}

// reports are the lines of the table, as for a run without a page. Buyers that got no answer have failed.
func (s *stageSale) reports() (all []report) {
	for i, r := range rounds {
		total, lost := s.total(i)
		total.Failed += int(lost)
		all = append(all, newReport(r, s.plan.Stock, s.tracks[i].audit, total))
	}
	return all
}

// total adds up what the shops report of a round; lost are buyers that were inside a shop when it was killed.
func (s *stageSale) total(round int) (all result, lost int64) {
	for _, p := range s.parts {
		r := p.standings[round]
		all.merge(result{Bought: r.Bought, SoldOut: r.SoldOut, Refused: r.Refused, Failed: r.Failed, Requests: r.Requests, Failure: r.Failure})
		if p.lost != nil {
			lost += p.lost[round]
		}
	}
	all.Waits, all.Selling = s.tracks[round].waits, s.tracks[round].last
	return all, lost
}

package stage

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/wllock/wllock/example/flashsale/internal/sale"
	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// stageSale is a sale on the stage: all rounds at once, each with a database of its own. The goroutine of the stage owns it, but for
// the databases, which a helper looks at.
type stageSale struct {
	Number  int          `json:"number"`
	Running bool         `json:"running"`
	Closed  bool         `json:"closed"` // nobody comes any more
	Stock   int          `json:"stock"`
	Seconds int          `json:"seconds"` // within which the buyers come
	Elapsed float64      `json:"elapsed"`
	Rounds  []pageRound  `json:"rounds"`
	Samples [][]float64  `json:"samples"` // the time in s, and how many each round had sold by then
	Outages [][2]float64 `json:"outages"` // of the lock service: from, to, in s; to 0: it goes on
	Verdict string       `json:"verdict"`

	task    sale.Task // what every shop is told, but for its own part
	began   time.Time
	tracks  []*track // a round each
	noticed bool     // a shop knows of the outage that goes on
}

type pageRound struct {
	sale.Report
	Locked bool `json:"locked"`
	Inside int  `json:"inside"` // wait for an answer
}

// track is what the stage knows of a round.
type track struct {
	shop  *sqlshop.Shop // its database
	audit sqlshop.Audit
	seen  sale.Result   // by the buyers; those that were inside a shop when it was killed have failed
	last  time.Duration // since the beginning: when the number of pieces sold was last seen to grow
}

func (s *stageSale) at() time.Duration { return time.Since(s.began) }

const (
	sampleInterval = 200 * time.Millisecond // between two looks at the databases
	stallTime      = 800 * time.Millisecond // without a sale is worth a line in the log: long beside a sample, and a busy machine's pauses
)

func (sc *scene) selling() bool { return sc.Sale != nil && sc.Sale.Running }

func (sc *scene) startSale(form url.Values) (err error) {
	s, buyers := &stageSale{Number: 1}, 0
	if sc.Sale != nil {
		s.Number += sc.Sale.Number
	}
	for _, field := range []struct {
		name string
		to   *int
		most int
	}{{"stock", &s.Stock, 100_000}, {"buyers", &buyers, 30_000}, {"seconds", &s.Seconds, 300}} {
		if *field.to, err = number(form, field.name, 1, field.most); err != nil {
			return err
		}
	}
	switch {
	case sc.Problem != "":
		return errors.New(sc.Problem)
	case sc.selling():
		return errors.New("a sale is going on: one at a time")
	case !slices.ContainsFunc(sc.Shops, (*shopSeat).up):
		return errors.New("all shops are down: restart one")
	}
	st := sc.stage
	set := st.settings
	set.Backend, set.Instances, set.Buyers, set.Stock = sc.Service.url, pageShops, max(1, buyers/pageShops), s.Stock
	set.Ramp, set.Think, set.TTL = time.Duration(s.Seconds)*time.Second, pageThinking, pageTTL
	s.task = sale.Task{Sale: s.Number, Settings: set, System: sale.NewSystem(), Pool: 1, Stride: pageShops}
	if err := s.open(st.ctx); sc.failed(err) {
		s.close()
		return err
	}
	sc.Sale, sc.Events = s, nil
	s.began, s.Running = time.Now(), true
	sc.say("Sale %d: %d pieces. %d buyers come to %d shops within %d s, in each of the %d rounds. Threshold %d, round trip to the lock service %v and more.",
		s.Number, s.Stock, set.Buyers*pageShops, pageShops, s.Seconds, len(sale.Rounds), sc.Threshold, set.RTT)
	if !sc.Service.Up {
		s.serviceIs(false)
		sc.say("The lock service is down.")
	}
	for _, seat := range sc.Shops {
		if seat.up() {
			sc.join(seat)
		}
	}
	st.helpers.Go(func() { s.watch(st) })
	return nil
}

func (s *stageSale) open(ctx context.Context) error {
	for _, r := range sale.Rounds {
		shop, err := sqlshop.Open(sqlshop.Temporary, 1, nil)
		if err != nil {
			return err
		}
		s.tracks = append(s.tracks, &track{shop: shop, audit: sqlshop.Audit{Left: s.Stock}})
		s.task.Stalls = append(s.task.Stalls, sale.Stall{Way: r.Title, URL: shop.URL})
		if err := errors.Join(shop.Create(ctx), shop.Stock(ctx, r.Title, s.Stock)); err != nil {
			return err
		}
	}
	return nil
}

func (s *stageSale) close() {
	for _, t := range s.tracks {
		t.shop.Close()
	}
}

// endSale lets nobody in any more. The sale is over when those inside are answered.
func (sc *scene) endSale() error {
	if !sc.selling() || sc.Sale.Closed {
		return errors.New("no sale goes on")
	}
	sc.Sale.Closed = true
	sc.say("You ended the sale: nobody comes any more, and those inside are answered.")
	sc.tell(sale.Order{Close: true})
	return nil
}

// join lets a shop take part, from now on.
func (sc *scene) join(seat *shopSeat) {
	s, task := sc.Sale, sc.Sale.task
	task.Threshold, task.First = sc.Threshold, seat.N-1
	if len(s.Samples) > 0 { // the buyers that would have come before have gone elsewhere
		task.Late = s.at()
	}
	seat.selling, seat.inside = true, make([]int, len(sale.Rounds))
	seat.child.Order(sale.Order{Open: &task, Go: true})
}

// hear takes in what a shop reports.
func (sc *scene) hear(seat *shopSeat, n sale.News) {
	switch {
	case n.Gone:
		sc.say("Shop %d has ended by itself.", seat.N)
		sc.leave(seat)
		return
	case !seat.selling || n.Sale != sc.Sale.Number:
		return
	case n.Failure != "":
		sc.Problem = n.Failure
	}
	for i, r := range n.Results {
		sc.Sale.tracks[i].seen.Merge(r)
		seat.inside[i] += r.Inside()
	}
	seat.selling, seat.away = !n.Done, n.Away
	switch s := sc.Sale; { // when the shops learn that the lock service is down, and when all know that it is back
	case n.Away && !s.noticed && !sc.Service.Up:
		s.noticed = true
		sc.say("wllock knows it in shop %d, %s after: buyers are told at once to try again, instead of waiting for nothing.",
			seat.N, said(time.Since(sc.Service.since)))
	case s.noticed && sc.Service.Up && !slices.ContainsFunc(sc.Shops, func(o *shopSeat) bool { return o.away }):
		s.noticed = false
		sc.say("wllock asks the lock service again in all shops.")
	}
}

// serviceIs notes that an outage of the lock service begins or ends.
func (s *stageSale) serviceIs(up bool) {
	last := len(s.Outages) - 1
	switch goesOn := last >= 0 && s.Outages[last][1] == 0; {
	case up && goesOn:
		s.Outages[last][1] = s.at().Seconds()
	case !up && !goesOn:
		s.Outages = append(s.Outages, [2]float64{s.at().Seconds()})
	}
}

// over reports whether all shops are done. For one that is down it waits as long as buyers would come: somebody may restart it.
func (sc *scene) over() bool {
	waiting := !sc.Sale.Closed && sc.Sale.at() < time.Duration(sc.Sale.Seconds)*time.Second
	return !slices.ContainsFunc(sc.Shops, func(s *shopSeat) bool { return s.selling || !s.up() && waiting })
}

// watch asks the databases until the sale is over, and once more.
func (s *stageSale) watch(st *stage) {
	for over, last := false, false; !last; {
		if sqlshop.Sleep(st.ctx, sampleInterval) != nil {
			return
		}
		last = over
		var audits []sqlshop.Audit
		var err error
		for i, r := range sale.Rounds {
			a, wrong := s.tracks[i].shop.Audit(st.ctx, r.Title)
			audits, err = append(audits, a), errors.Join(err, wrong)
		}
		at := s.at()
		st.tell(func(sc *scene) {
			if !sc.failed(err) {
				sc.sample(audits, at)
			}
			if over = sc.over(); last {
				sc.finish()
			}
		})
	}
}

// sample takes in what the databases say, and says when a round that stood still sells again.
func (sc *scene) sample(audits []sqlshop.Audit, at time.Duration) {
	s, now := sc.Sale, []float64{at.Seconds()}
	for i, a := range audits {
		t, r := s.tracks[i], sale.Rounds[i]
		if a.Sold > t.audit.Sold {
			if still := at - t.last; r.Locked && still > stallTime && t.audit.Sold > 0 {
				sc.say("%s sells again: it had sold nothing for %s.", r.Title, said(still))
			}
			t.last = at
		}
		t.audit = a
		now = append(now, float64(a.Sold))
	}
	s.Samples = append(s.Samples, now)
}

// finish says what came of it.
func (sc *scene) finish() {
	s := sc.Sale
	s.serviceIs(true)
	var reports []sale.Report
	for _, r := range s.describe() {
		reports = append(reports, r.Report)
		text := fmt.Sprintf("%s sold %d of %d pieces", r.Round, r.Sold, s.Stock)
		switch {
		case r.Oversold > 0:
			text += fmt.Sprintf(": %d that do not exist", r.Oversold)
		case r.Once():
			text += ", each to one buyer"
		default:
			text += fmt.Sprintf(", %d of them twice: the stock says that %d are left", r.Twice, r.Left)
		}
		sc.say("%s.", text)
		if r.Failure != "" && (r.Failed > 0 || s.Outages == nil) { // an outage of the page explains itself
			sc.say("%s: the first error was: %s", r.Round, r.Failure)
		}
	}
	s.Verdict, s.Running = sale.Verdict(reports), false
	s.close()
}

// describe completes what the page gets: the line of each round is that of a run without a page.
func (s *stageSale) describe() []pageRound {
	if s.Running {
		s.Elapsed = s.at().Seconds()
	}
	s.Rounds = nil
	for i, t := range s.tracks {
		seen := t.seen
		seen.Selling = t.last
		s.Rounds = append(s.Rounds, pageRound{sale.NewReport(sale.Rounds[i], s.Stock, t.audit, seen), sale.Rounds[i].Locked, seen.Inside()})
	}
	return s.Rounds
}

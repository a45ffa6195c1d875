package main

import (
	"fmt"
	"time"
)

// event is a line of the page's log.
type event struct {
	At   string `json:"at"`
	Text string `json:"text"`
}

// say adds a line to the log: with the time of the sale while there is one, otherwise with that of the day.
func (sc *scene) say(format string, args ...any) {
	at := time.Now().Format(time.TimeOnly)
	if sc.selling() {
		at = fmt.Sprintf("+%.1f s", time.Since(sc.sale.began).Seconds())
	}
	sc.events = append(sc.events, event{At: at, Text: fmt.Sprintf(format, args...)})
}

// seconds is a duration as people say it.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// The state as the page gets it.
type pageState struct {
	Problem   string      `json:"problem"`
	Service   pageService `json:"service"`
	Shops     []pageShop  `json:"shops"`
	Threshold int         `json:"threshold"`
	RTT       string      `json:"rtt"`
	Starting  bool        `json:"starting"`
	Sale      *pageSale   `json:"sale"`
	Events    []event     `json:"events"`
}

type pageService struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	Up   bool   `json:"up"`
	Ours bool   `json:"ours"` // it may be killed
	Down bool   `json:"down"` // it may be restarted
}

type pageShop struct {
	N   int  `json:"n"`
	PID int  `json:"pid"`
	Up  bool `json:"up"`
}

type pageSale struct {
	Number  int          `json:"number"`
	Running bool         `json:"running"`
	Closed  bool         `json:"closed"` // nobody comes any more
	Stock   int          `json:"stock"`
	Buyers  int          `json:"buyers"`
	Seconds int          `json:"seconds"`
	Elapsed float64      `json:"elapsed"`
	Rounds  []pageRound  `json:"rounds"`
	Samples [][]float64  `json:"samples"` // the time, and how many each round has sold
	Outages [][2]float64 `json:"outages"` // from, to
	Verdict string       `json:"verdict"`
}

type pageRound struct {
	Title    string  `json:"title"`
	Locked   bool    `json:"locked"`
	Sold     int     `json:"sold"`
	Left     int     `json:"left"`
	Oversold int     `json:"oversold"`
	Twice    int     `json:"twice"` // orders for which no piece left the stock
	SoldOut  int     `json:"sold_out"`
	Refused  int     `json:"refused"`
	Failed   int     `json:"failed"` // got an error, or no answer from a shop that was killed
	Inside   int64   `json:"inside"` // wait for an answer
	Requests int64   `json:"requests"`
	Rate     float64 `json:"rate"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
}

// describe makes the state of all.
func (sc *scene) describe() pageState {
	p := pageState{
		Problem: sc.problem, Threshold: sc.threshold, RTT: sc.stage.settings.RTT.String(), Starting: sc.opening, Events: sc.events,
		Service: pageService{Name: sc.service.name, Up: sc.service.up, Ours: sc.service.path != "", Down: sc.service.path != "" && sc.service.proc == nil},
	}
	if sc.service.proc != nil {
		p.Service.PID = sc.service.proc.pid()
	}
	for _, seat := range sc.shops {
		shop := pageShop{N: seat.n + 1, Up: seat.up()}
		if shop.Up {
			shop.PID = seat.proc.pid()
		}
		p.Shops = append(p.Shops, shop)
	}
	if sc.sale != nil {
		p.Sale = sc.sale.describe()
	}
	return p
}

func (s *stageSale) describe() *pageSale {
	until := s.ended
	if until.IsZero() {
		until = time.Now()
	}
	p := &pageSale{
		Number: s.number, Running: s.ended.IsZero(), Closed: s.closed, Stock: s.plan.Stock, Buyers: s.plan.Buyers, Seconds: s.plan.Seconds,
		Elapsed: until.Sub(s.began).Seconds(), Verdict: s.verdict,
	}
	for i, r := range s.reports() {
		p.Rounds = append(p.Rounds, pageRound{
			Title: r.Round, Locked: r.locked, Sold: r.Sold, Left: r.Left, Oversold: r.Oversold,
			Twice: max(0, r.Sold+r.Left-s.plan.Stock), SoldOut: r.SoldOut, Refused: r.Refused,
			Failed: r.Failed, Inside: s.inside(i), Requests: r.Requests, Rate: r.OrdersPerSecond, P50: r.P50Wait, P99: r.P99Wait,
		})
	}
	for _, x := range s.samples {
		point := []float64{x.at.Seconds()}
		for _, sold := range x.sold {
			point = append(point, float64(sold))
		}
		p.Samples = append(p.Samples, point)
	}
	for _, o := range s.outages {
		to := o.to
		if to == 0 {
			to = until.Sub(s.began)
		}
		p.Outages = append(p.Outages, [2]float64{o.from.Seconds(), to.Seconds()})
	}
	return p
}

// inside is how many buyers of a round wait for an answer.
func (s *stageSale) inside(round int) (n int64) {
	for _, p := range s.parts {
		if p.lost == nil {
			n += p.standings[round].Arrived - p.standings[round].answered()
		}
	}
	return n
}

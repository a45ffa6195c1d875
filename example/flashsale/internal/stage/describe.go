package stage

import (
	"fmt"
	"slices"
	"time"

	"github.com/wllock/wllock/example/flashsale/internal/sale"
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
		at = "+" + said(sc.sale.at())
	}
	sc.Events = append(sc.Events, event{At: at, Text: fmt.Sprintf(format, args...)})
}

// said is a duration as people say it.
func said(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// pageState is what the page gets.
type pageState struct {
	Problem   string      `json:"problem"` // why there is nothing to see; "": there is
	Service   pageService `json:"service"`
	Shops     []pageShop  `json:"shops"`
	Threshold int         `json:"threshold"`
	RTT       string      `json:"rtt"`
	Starting  bool        `json:"starting"` // a sale's databases are being made
	Sale      *pageSale   `json:"sale"`     // the last one; nil: none yet
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
	N   int  `json:"n"` // from 1
	PID int  `json:"pid"`
	Up  bool `json:"up"`
}

type pageSale struct {
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
}

type pageRound struct {
	sale.Report
	Locked bool `json:"locked"`
	Inside int  `json:"inside"` // wait for an answer
}

// describe completes the state.
func (sc *scene) describe() pageState {
	p, service := sc.pageState, &sc.service
	p.Service = pageService{Name: service.name, Up: service.up, Ours: service.ours(), Down: service.ours() && service.proc == nil}
	if service.proc != nil {
		p.Service.PID = service.proc.Process.Pid
	}
	for _, seat := range sc.shops {
		shop := pageShop{N: seat.n + 1, Up: seat.up()}
		if shop.Up {
			shop.PID = seat.child.Process.Pid
		}
		p.Shops = append(p.Shops, shop)
	}
	if sc.sale != nil {
		p.Sale = sc.sale.describe()
	}
	return p
}

func (s *stageSale) describe() *pageSale {
	p := s.pageSale
	if p.Running {
		p.Elapsed = s.at().Seconds()
	}
	for i, round := range sale.Rounds {
		r := s.report(i)
		shown := pageRound{Report: r, Locked: round.Locked}
		for _, part := range s.parts {
			if !part.killed {
				shown.Inside += part.inside(i)
			}
		}
		p.Rounds = append(p.Rounds, shown)
	}
	if last := len(p.Outages) - 1; last >= 0 && p.Outages[last][1] == 0 {
		p.Outages = slices.Clone(p.Outages)
		p.Outages[last][1] = p.Elapsed
	}
	return &p
}

package stage

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/wllock/wllock/example/flashsale/internal/face"
	"github.com/wllock/wllock/example/flashsale/internal/sale"
)

const (
	// pageShops is as many as a small machine runs beside a lock service, and more than two, so that a hand-over has a choice.
	pageShops = 3
	// pageTTL is shorter than a Locker's default, because people wait for it to expire when they have killed a shop.
	pageTTL = 2 * time.Second
	// pageThinking makes orders slow enough for all rounds at once on two cores, so that the rounds do not slow each other down.
	pageThinking = 2 * time.Millisecond
)

// scene is all that runs on the stage. Only the goroutine of the stage touches it.
type scene struct {
	pageState // but what describe completes
	stage     *stage
	newer     chan struct{} // closed when the scene has changed
	opened    bool
	dir       string // of the lock service
	service   lockService
	shops     []*shopSeat
	sales     int        // so far
	sale      *stageSale // the last one; nil: none yet
}

// shopSeat is the place of a shop: its process may be killed, and another takes the place.
type shopSeat struct {
	n     int           // from 0
	child *sale.Process // nil: it is down
	part  *part         // in the sale that goes on; nil: none
}

func (s *shopSeat) up() bool { return s.child != nil }

// open starts the lock service and the shops, once; and again when that had no success.
func (sc *scene) open() {
	if sc.opened {
		return
	}
	if err := sc.choose(); err != nil {
		sc.Problem = err.Error()
		return
	}
	sc.opened, sc.Problem = true, ""
	for n := range pageShops {
		seat := &shopSeat{n: n}
		sc.shops = append(sc.shops, seat)
		if err := sc.startShop(seat); err != nil {
			sc.Problem = err.Error()
		}
	}
	if !sc.service.ours() {
		sc.say("%s and %d shops, which are processes, are ready.", sc.service.name, pageShops)
		return
	}
	sc.startService(func() {
		sc.say("The lock service (%s, process %d) and %d shops, which are processes of their own, are ready.", sc.service.name, sc.service.proc.Process.Pid, pageShops)
	})
}

// choose finds the lock service, and makes a directory for it.
func (sc *scene) choose() (err error) {
	if sc.dir == "" {
		if sc.dir, err = os.MkdirTemp("", "flashsale-"); err != nil {
			return err
		}
	}
	sc.service, err = findService(sc.stage.settings.Backend, sc.dir)
	return err
}

// press is what the buttons do.
func (sc *scene) press(button string, form url.Values) error {
	switch button {
	case "open":
		sc.open()
		return nil
	case "sale":
		return sc.startSale(form)
	case "sale/end":
		return sc.endSale()
	case "threshold":
		n, err := face.Number(form, "value", 0, 1_000_000)
		if err == nil {
			sc.setThreshold(n)
		}
		return err
	case "service/kill":
		return sc.killService()
	case "service/restart":
		return sc.restartService()
	}
	for n, seat := range sc.shops {
		switch button {
		case fmt.Sprintf("shops/%d/kill", n+1):
			return sc.killShop(seat)
		case fmt.Sprintf("shops/%d/restart", n+1):
			return sc.restartShop(seat)
		}
	}
	return errors.New("there is no such button, or shop")
}

// startService starts the lock service; up is called by the scene when it answers.
func (sc *scene) startService(up func()) {
	proc, err := sc.service.start()
	if err != nil {
		sc.Problem = err.Error()
		return
	}
	sc.service.proc = proc
	st, settings := sc.stage, sc.settings()
	st.helpers.Go(func() {
		err := answers(st.ctx, settings, proc.Gone)
		st.tell(func(sc *scene) {
			switch {
			case sc.service.proc != proc: // killed meanwhile
			case err != nil:
				sc.Problem = err.Error()
				_ = proc.Process.Kill()
			default:
				sc.service.up, sc.Problem = true, ""
				up()
				sc.service.since = time.Now()
				if sc.selling() {
					sc.sale.resumed()
				}
			}
		})
		<-proc.Gone
		st.tell(func(sc *scene) {
			if sc.service.proc == proc { // that it was killed has been said
				sc.service.fallen()
				sc.say("The lock service has ended by itself.")
			}
		})
	})
}

// settings are those of the server, with the lock service of the page.
func (sc *scene) settings() sale.Settings {
	s := sc.stage.settings
	s.Backend = sc.service.url
	return s
}

func (sc *scene) killService() error {
	switch {
	case !sc.service.ours():
		return errors.New("this lock service is not ours to kill")
	case sc.service.proc == nil:
		return errors.New("the lock service is down already")
	}
	_ = sc.service.proc.Process.Kill() // it may have ended already
	sc.service.fallen()
	sc.say("You killed the lock service (SIGKILL). Nobody can get a lock from it now; nothing is sold under a lock without one.")
	if sc.selling() {
		sc.sale.interrupted()
	}
	return nil
}

func (sc *scene) restartService() error {
	if !sc.service.ours() || sc.service.proc != nil {
		return errors.New("the lock service is not down")
	}
	down := sc.service.since
	sc.startService(func() {
		sc.say("The lock service is back after %s, with the locks it had: they were in its append-only file.", said(time.Since(down)))
	})
	return nil
}

// startShop starts a process on the seat.
func (sc *scene) startShop(seat *shopSeat) (err error) {
	var child *sale.Process
	child, err = sale.StartChild(sc.stage.stderr, func(n sale.News) {
		sc.stage.tell(func(sc *scene) {
			if seat.child == child { // otherwise it was killed, and what it had said last counts
				sc.hear(seat, n)
			}
		})
	})
	seat.child = child
	return err
}

// leave empties the seat. It returns how many buyers were inside and get no answer.
func (sc *scene) leave(seat *shopSeat) (lost int) {
	seat.child.End()
	seat.child = nil
	if seat.part != nil {
		seat.part.killed = true
		for round := range sale.Rounds {
			lost += seat.part.inside(round)
		}
		seat.part = nil
	}
	return lost
}

func (sc *scene) killShop(seat *shopSeat) error {
	if !seat.up() {
		return fmt.Errorf("shop %d is down already", seat.n+1)
	}
	selling := sc.selling()
	_ = seat.child.Process.Kill()
	lost := sc.leave(seat)
	if selling {
		sc.say("You killed shop %d (SIGKILL): %d buyers were inside and get no answer. If it had a lock, the others wait until its lease expires, %v at most.",
			seat.n+1, lost, pageTTL)
	} else {
		sc.say("You killed shop %d (SIGKILL).", seat.n+1)
	}
	return nil
}

func (sc *scene) restartShop(seat *shopSeat) error {
	if seat.up() {
		return fmt.Errorf("shop %d is not down", seat.n+1)
	}
	if err := sc.startShop(seat); err != nil {
		return err
	}
	sc.say("Shop %d is back, as process %d.", seat.n+1, seat.child.Process.Pid)
	if sc.selling() && !sc.sale.Closed {
		sc.join(seat)
	}
	return nil
}

// tell gives an order to all shops. One that does not read it has ended, and will be heard of.
func (sc *scene) tell(o sale.Order) {
	for _, seat := range sc.shops {
		if seat.up() {
			_ = seat.child.Order(o)
		}
	}
}

func (sc *scene) setThreshold(n int) {
	if n == sc.Threshold {
		return
	}
	sc.say("The threshold is %d now: at most that many buyers wait in a shop, others are told at once to try later.", n)
	sc.Threshold = n
	sc.tell(sale.Order{Threshold: &n})
}

// close ends all processes, the shops first: so they can release what they have.
func (sc *scene) close() {
	if sc.sale != nil {
		sc.sale.close()
	}
	for _, seat := range sc.shops {
		if seat.up() {
			seat.child.End()
		}
	}
	for _, seat := range sc.shops {
		if seat.up() {
			<-seat.child.Gone
		}
	}
	if p := sc.service.proc; p != nil {
		p.End()
		<-p.Gone
	}
}

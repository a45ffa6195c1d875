package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

const (
	// pageShops is as many as a small machine runs beside a lock service, and more than two, so that a hand-over has a choice.
	pageShops = 3
	// pageTTL is shorter than a Locker's default, because people wait for it to expire when they have killed a shop.
	pageTTL = 2 * time.Second
	// pageThinking makes orders slow enough for all rounds at once on two cores, so that the rounds do not slow each other down.
	pageThinking = 2 * time.Millisecond
	// endTime is for a child process to end when it is told to.
	endTime = 3 * time.Second
)

// scene is all that runs on the stage. Only the goroutine of the stage touches it.
type scene struct {
	stage     *stage
	changed   bool // since the state was published
	opened    bool
	dir       string // of the lock service
	problem   string // why there is nothing to see; "": there is
	service   lockService
	shops     []*shopSeat
	threshold int
	sales     int        // so far
	opening   bool       // a sale's databases are being made
	sale      *stageSale // the last one; nil: none yet
	events    []event
}

// shopSeat is the place of a shop: its process may be killed, and another takes the place.
type shopSeat struct {
	n    int // from 0
	proc *process
	in   *json.Encoder
	part *part // in the sale that goes on; nil: none
	hang func() error
}

func (s *shopSeat) up() bool { return s.proc != nil }

func newScene(st *stage) *scene {
	return &scene{stage: st, threshold: st.settings.Threshold}
}

// open starts the lock service and the shops, once; and again when that had no success.
func (sc *scene) open() {
	if sc.opened {
		return
	}
	if sc.dir == "" {
		dir, err := os.MkdirTemp("", "flashsale-")
		if err != nil {
			sc.problem = err.Error()
			return
		}
		sc.dir = dir
	}
	var err error
	if sc.service, err = findService(sc.stage.settings.Backend, sc.dir); err != nil {
		sc.problem = err.Error()
		return
	}
	sc.opened, sc.problem = true, ""
	for n := range pageShops {
		seat := &shopSeat{n: n}
		sc.shops = append(sc.shops, seat)
		if err := sc.startShop(seat); err != nil {
			sc.problem = err.Error()
		}
	}
	if sc.service.path == "" {
		sc.say("%s and %d shops, which are processes, are ready.", sc.service.name, pageShops)
		return
	}
	sc.startService(func() {
		sc.say("The lock service (%s, process %d) and %d shops, which are processes of their own, are ready.", sc.service.name, sc.service.proc.pid(), pageShops)
	})
}

// startService starts the lock service; up is called by the scene when it answers.
func (sc *scene) startService(up func()) {
	proc, err := startProcess(sc.service.command(), nil)
	if err != nil {
		sc.problem = err.Error()
		return
	}
	sc.service.proc = proc
	st, url := sc.stage, sc.service.url
	st.help(func() {
		err := answers(st.ctx, url, proc.gone)
		st.tell(func(sc *scene) {
			switch {
			case sc.service.proc != proc: // killed meanwhile
			case err != nil:
				sc.problem = err.Error()
				proc.kill()
			default:
				sc.service.up, sc.problem = true, ""
				up()
				sc.service.since = time.Now()
				if sc.selling() {
					sc.sale.resumed()
				}
			}
		})
		<-proc.gone
		st.tell(func(sc *scene) { sc.serviceGone(proc) })
	})
}

// serviceGone notes the end of the lock service. That it was killed has been said.
func (sc *scene) serviceGone(proc *process) {
	if sc.service.proc != proc {
		return
	}
	sc.service.proc, sc.service.up, sc.service.since = nil, false, time.Now()
	sc.say("The lock service has ended by itself.")
}

func (sc *scene) killService() error {
	switch {
	case sc.service.path == "":
		return errors.New("this lock service is not ours to kill")
	case sc.service.proc == nil:
		return errors.New("the lock service is down already")
	}
	sc.service.proc.kill()
	sc.service.proc, sc.service.up, sc.service.since = nil, false, time.Now()
	sc.say("You killed the lock service (SIGKILL). Nobody can get a lock from it now; nothing is sold under a lock without one.")
	if sc.selling() {
		sc.sale.interrupted()
	}
	return nil
}

func (sc *scene) restartService() error {
	if sc.service.path == "" || sc.service.proc != nil {
		return errors.New("the lock service is not down")
	}
	down := sc.service.since
	sc.startService(func() {
		sc.say("The lock service is back after %s, with the locks it had: they were in its append-only file.", seconds(time.Since(down)))
	})
	return nil
}

// startShop starts a process on the seat.
func (sc *scene) startShop(seat *shopSeat) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"="+shopChild)
	cmd.Stderr = sc.stage.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	drained := make(chan struct{})
	proc, err := startProcess(cmd, drained)
	if err != nil {
		close(drained)
		return err
	}
	seat.proc, seat.in, seat.hang = proc, json.NewEncoder(in), in.Close
	st := sc.stage
	st.help(func() {
		listen(st, seat, proc, json.NewDecoder(out))
		close(drained)
		<-proc.gone
		st.tell(func(sc *scene) { sc.shopGone(seat, proc) })
	})
	return sc.order(seat, order{Threshold: &sc.threshold})
}

// listen passes on the news of a process until its output ends.
func listen(st *stage, seat *shopSeat, proc *process, out *json.Decoder) {
	for {
		var n news
		if out.Decode(&n) != nil {
			return
		}
		st.tell(func(sc *scene) {
			if seat.proc == proc { // otherwise it was killed, and what it had said last counts
				sc.hear(seat, n)
			}
		})
	}
}

// order writes to a shop. It does not block: what a sale sends is far below what a pipe holds.
func (sc *scene) order(seat *shopSeat, o order) error {
	if err := seat.in.Encode(o); err != nil {
		return fmt.Errorf("shop %d: %w", seat.n+1, err)
	}
	return nil
}

// shopGone notes a process that ended by itself: one that was killed has left its seat before.
func (sc *scene) shopGone(seat *shopSeat, proc *process) {
	if seat.proc == proc {
		sc.say("Shop %d has ended by itself.", seat.n+1)
		sc.leave(seat)
	}
}

// leave empties the seat. It returns how many buyers were inside and get no answer.
func (sc *scene) leave(seat *shopSeat) (lost int64) {
	_ = seat.hang()
	seat.proc = nil
	if seat.part != nil {
		lost = seat.part.lose()
		seat.part = nil
		sc.endSaleIfDone()
	}
	return lost
}

func (sc *scene) onShop(n int, do func(*shopSeat) error) error {
	if n < 1 || n > len(sc.shops) {
		return fmt.Errorf("there is no shop %d", n)
	}
	return do(sc.shops[n-1])
}

func (sc *scene) killShop(seat *shopSeat) error {
	if !seat.up() {
		return fmt.Errorf("shop %d is down already", seat.n+1)
	}
	selling := sc.selling()
	seat.proc.kill()
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
	sc.say("Shop %d is back, as process %d.", seat.n+1, seat.proc.pid())
	if sc.selling() && !sc.sale.closed {
		return sc.join(seat)
	}
	return nil
}

func (sc *scene) setThreshold(n int) {
	if n == sc.threshold {
		return
	}
	sc.say("The threshold is %d now: at most that many buyers wait in a shop, others are told at once to try later.", n)
	sc.threshold = n
	for _, seat := range sc.shops {
		if seat.up() {
			_ = sc.order(seat, order{Threshold: &n}) // a shop that does not read has ended, and will be heard of
		}
	}
}

// close ends all processes, the shops first: so they can release what they have.
func (sc *scene) close() {
	if sc.sale != nil {
		sc.sale.close()
	}
	deadline := time.Now().Add(endTime)
	for _, seat := range sc.shops {
		if seat.up() {
			_ = seat.hang()
		}
	}
	for _, seat := range sc.shops {
		if seat.up() {
			seat.proc.end(time.Until(deadline))
		}
	}
	sc.service.stop(endTime)
}

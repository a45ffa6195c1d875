package stage

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/wllock/wllock/example/flashsale/internal/sale"
)

const (
	pageShops    = 3                    // as many as a small machine runs; more than two, so that a hand-over has a choice
	pageTTL      = 2 * time.Second      // shorter than a Locker's default, because people wait for it when they have killed a shop
	pageThinking = 2 * time.Millisecond // so that on two cores the rounds do not slow each other down
	serviceStart = 20 * time.Second     // for the lock service of a busy machine
)

// scene is all that runs on the stage. Only the goroutine of the stage touches it.
type scene struct {
	pageState
	stage *stage
	newer chan struct{} // closed when the scene has changed
	dir   string        // of the lock service
}

// pageState is what the page gets of the scene.
type pageState struct {
	Problem   string      `json:"problem"` // why there is nothing to see; "": there is
	Service   lockService `json:"service"`
	Shops     []*shopSeat `json:"shops"`
	Threshold int         `json:"threshold"`
	RTT       string      `json:"rtt"`
	Sale      *stageSale  `json:"sale"` // the last one; nil: none yet
	Events    []event     `json:"events"`
}

// event is a line of the page's log.
type event struct {
	At   string `json:"at"`
	Text string `json:"text"`
}

// lockService is that of the page: a Redis of its own, which may be killed, or the user's -backend, which may not. It is reached over a
// socket in the directory of the scene, which nobody else can open, on no port.
type lockService struct {
	Name string `json:"name"`
	PID  int    `json:"pid"` // 0: it is the user's, or is down
	Up   bool   `json:"up"`
	Ours bool   `json:"ours"` // it may be killed

	url, path string // path is that of the program
	proc      *sale.Process
	since     time.Time // of the last change
}

// shopSeat is the place of a shop: its process may be killed, and another takes the place.
type shopSeat struct {
	N   int `json:"n"`   // from 1
	PID int `json:"pid"` // 0: it is down

	child   *sale.Process // nil: it is down
	selling bool          // buyers come, or are inside
	inside  []int         // in each round
	away    bool          // it knows that the lock service is
}

func (s *shopSeat) up() bool { return s.child != nil }

// say adds a line to the log: with the time of the sale while there is one, otherwise with that of the day.
func (sc *scene) say(format string, args ...any) {
	at := time.Now().Format(time.TimeOnly)
	if sc.selling() {
		at = "+" + said(sc.Sale.at())
	}
	sc.Events = append(sc.Events, event{At: at, Text: fmt.Sprintf(format, args...)})
}

func said(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// open starts the lock service and the shops, once; and again when that had no success.
func (sc *scene) open() {
	if sc.Shops != nil || sc.failed(sc.choose()) {
		return
	}
	for n := range pageShops {
		sc.Shops = append(sc.Shops, &shopSeat{N: n + 1})
		sc.failed(sc.startShop(sc.Shops[n]))
	}
	if !sc.Service.Ours {
		sc.say("%s and %d shops, which are processes, are ready.", sc.Service.Name, pageShops)
		return
	}
	sc.startService(func() {
		sc.say("The lock service (%s, process %d) and %d shops, which are processes of their own, are ready.", sc.Service.Name, sc.Service.PID, pageShops)
	})
}

// failed shows an error on the page, instead of a sale.
func (sc *scene) failed(err error) bool {
	if err != nil {
		sc.Problem = err.Error()
	}
	return err != nil
}

// choose finds the lock service.
func (sc *scene) choose() (err error) {
	if url := sc.stage.settings.Backend; url != sale.MemoryURL {
		sc.Service, sc.Problem = lockService{Name: "the lock service of -backend", url: url, Up: true}, ""
		return nil
	}
	if sc.dir == "" {
		if sc.dir, err = os.MkdirTemp("", "flashsale-"); err != nil {
			return err
		}
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			sc.Service, sc.Problem = lockService{Name: "Redis", Ours: true, url: "unix://" + sc.socket(), path: path}, ""
			return nil
		}
	}
	return errors.New("no redis-server in PATH: install it (apt install redis-server, brew install redis) and reload, " +
		"or start with -backend redis://host:port")
}

func (sc *scene) socket() string { return filepath.Join(sc.dir, "redis.sock") }

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
		return sc.setThreshold(form)
	case "service/kill":
		return sc.killService()
	case "service/restart":
		return sc.restartService()
	}
	for _, seat := range sc.Shops {
		switch place := fmt.Sprintf("shops/%d/", seat.N); button {
		case place + "kill":
			return sc.killShop(seat)
		case place + "restart":
			return sc.restartShop(seat)
		}
	}
	return errors.New("there is no such button, or shop")
}

// startService starts the lock service; up is called by the scene when it answers. Redis has an append-only file: what it has acknowledged
// is in the kernel's hands, so a kill forgets nothing.
func (sc *scene) startService(up func()) {
	proc, err := sale.StartProcess(sc.Service.path, "--port", "0", "--unixsocket", sc.socket(), "--unixsocketperm", "700",
		"--dir", sc.dir, "--save", "", "--appendonly", "yes", "--logfile", "redis.log", "--daemonize", "no")
	if sc.failed(err) {
		return
	}
	sc.Service.proc, sc.Service.PID = proc, proc.Process.Pid
	st, settings := sc.stage, sc.stage.settings
	settings.Backend = sc.Service.url
	st.helpers.Go(func() {
		err := answers(st.ctx, settings, proc.Gone)
		st.tell(func(sc *scene) {
			switch {
			case sc.Service.proc != proc: // killed meanwhile
			case sc.failed(err):
				_ = proc.Process.Kill()
			default:
				sc.Problem = ""
				up()
				sc.serviceIs(proc)
			}
		})
		<-proc.Gone
		st.tell(func(sc *scene) {
			if sc.Service.proc == proc { // that it was killed has been said
				sc.serviceIs(nil)
				sc.say("The lock service has ended by itself.")
			}
		})
	})
}

// answers waits until the lock service does.
func answers(ctx context.Context, s sale.Settings, gone <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, serviceStart)
	defer cancel()
	for {
		err := s.PrepareBackend(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-gone:
			return fmt.Errorf("the lock service has ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("the lock service does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// serviceIs notes that the lock service answers, or that it is down: nil.
func (sc *scene) serviceIs(proc *sale.Process) {
	s := &sc.Service
	s.proc, s.Up, s.since = proc, proc != nil, time.Now()
	if proc == nil {
		s.PID = 0
	}
	if sc.selling() {
		sc.Sale.serviceIs(s.Up)
	}
}

func (sc *scene) killService() error {
	switch {
	case !sc.Service.Ours:
		return errors.New("this lock service is not ours to kill")
	case sc.Service.proc == nil:
		return errors.New("the lock service is down already")
	}
	_ = sc.Service.proc.Process.Kill() // it may have ended already
	sc.serviceIs(nil)
	sc.say("You killed the lock service (SIGKILL). Nobody can get a lock from it now; nothing is sold under a lock without one.")
	return nil
}

func (sc *scene) restartService() error {
	if !sc.Service.Ours || sc.Service.proc != nil {
		return errors.New("the lock service is not down")
	}
	down := sc.Service.since
	sc.startService(func() {
		sc.say("The lock service is back after %s, with the locks it had: they were in its append-only file.", said(time.Since(down)))
	})
	return nil
}

func (sc *scene) startShop(seat *shopSeat) (err error) {
	st := sc.stage
	var child *sale.Process
	child, err = sale.StartChild(st.stderr, func(n sale.News) {
		st.tell(func(sc *scene) {
			if seat.child == child { // otherwise it was killed, and what it had said last counts
				sc.hear(seat, n)
			}
		})
	})
	if seat.child = child; err == nil {
		seat.PID = child.Process.Pid
	}
	return err
}

// leave empties the seat. It returns how many buyers were inside: they get no answer.
func (sc *scene) leave(seat *shopSeat) (lost int) {
	seat.child.End()
	for round, n := range seat.inside {
		lost += n
		sc.Sale.tracks[round].seen.Failed += n
	}
	*seat = shopSeat{N: seat.N}
	return lost
}

func (sc *scene) killShop(seat *shopSeat) error {
	if !seat.up() {
		return fmt.Errorf("shop %d is down already", seat.N)
	}
	_ = seat.child.Process.Kill()
	if lost := sc.leave(seat); sc.selling() {
		sc.say("You killed shop %d (SIGKILL): %d buyers were inside and get no answer. If it had a lock, the others wait until its lease expires, %v at most.",
			seat.N, lost, pageTTL)
	} else {
		sc.say("You killed shop %d (SIGKILL).", seat.N)
	}
	return nil
}

func (sc *scene) restartShop(seat *shopSeat) error {
	if seat.up() {
		return fmt.Errorf("shop %d is not down", seat.N)
	}
	if err := sc.startShop(seat); err != nil {
		return err
	}
	sc.say("Shop %d is back, as process %d.", seat.N, seat.PID)
	if sc.selling() && !sc.Sale.Closed {
		sc.join(seat)
	}
	return nil
}

func (sc *scene) tell(o sale.Order) {
	for _, seat := range sc.Shops {
		if seat.up() {
			seat.child.Order(o)
		}
	}
}

func (sc *scene) setThreshold(form url.Values) error {
	n, err := number(form, "value", 0, 1_000_000)
	if err != nil || n == sc.Threshold {
		return err
	}
	sc.say("The threshold is %d now: at most that many buyers wait in a shop, others are told at once to try later.", n)
	sc.Threshold = n
	sc.tell(sale.Order{Threshold: &n})
	return nil
}

// close ends all processes, the shops first: so they can release what they have.
func (sc *scene) close() {
	if sc.Sale != nil {
		sc.Sale.close()
	}
	var shops []*sale.Process
	for _, seat := range sc.Shops {
		if seat.up() {
			seat.child.End()
			shops = append(shops, seat.child)
		}
	}
	for _, p := range append(shops, sc.Service.proc) {
		if p != nil {
			p.End()
			<-p.Gone
		}
	}
}

package tenure_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

const (
	ttl = 3 * time.Second
	key = "order:product:1000"

	exclusive = distributed.Exclusive
	shared    = distributed.Shared
)

// house is one instance: a local queue, tenures, and a backend.
type house struct {
	t     *testing.T
	group *tenure.Group
	queue *local.Queue[*tenure.Tenure]

	mu     sync.Mutex
	failed []error

	meanwhile, hold func() // called before and after Idle has got a turn; nil: not
}

type tenureOf = tenure.Tenure

// exclusively is the usual way to ask.
var exclusively = tenure.Ask{Mode: exclusive}

type option = func(*tenure.Config)

// opened returns a house with the defaults of a Locker, but for what the options say.
func opened(t *testing.T, backend distributed.Backend, opts ...option) *house {
	h := &house{t: t}
	c := tenure.Config{Backend: backend, Instance: "here", TTL: ttl, MaxHandoffs: 128, MaxTenure: 100 * time.Millisecond,
		Queue: h, Failed: h.note}
	for _, o := range opts {
		o(&c)
	}
	h.group = tenure.NewGroup(c)
	h.queue = local.New(h.group.New)
	return h
}

func named(instance string) option     { return func(c *tenure.Config) { c.Instance = instance } }
func handoffs(n int) option            { return func(c *tenure.Config) { c.MaxHandoffs = n } }
func longest(d time.Duration) option   { return func(c *tenure.Config) { c.MaxTenure = d } }
func lingering(d time.Duration) option { return func(c *tenure.Config) { c.Linger = d } }
func (h *house) Unpin(key string)      { h.queue.Unpin(key) }
func (h *house) note(_ any, _ string, e error) {
	h.mu.Lock()
	h.failed = append(h.failed, e)
	h.mu.Unlock()
}
func (h *house) failures() (all []error) { h.mu.Lock(); defer h.mu.Unlock(); return h.failed }

func (h *house) Idle(key string) (tenure.Turn, bool) {
	if h.meanwhile != nil {
		h.meanwhile()
	}
	turn := new(local.Turn[*tenure.Tenure])
	got := h.queue.Idle(turn, key)
	if hold := h.hold; got && hold != nil {
		h.hold = nil
		hold()
	}
	return turn, got
}

// shuts is what a Locker's Close begins with.
func (h *house) shuts() {
	h.queue.Close()
	h.group.Close()
	var all []*tenure.Tenure
	h.queue.Each(func(_ string, t *tenure.Tenure, _ int) { all = append(all, t) })
	for _, t := range all {
		t.EndLinger()
	}
}

// closed shuts the house and requires that nothing is left in it.
func (h *house) closed() {
	h.t.Helper()
	h.shuts()
	synctest.Wait()
	require.True(h.t, h.drained(), "something is left at the end")
	h.group.Stop()
}

func (h *house) drained() bool {
	select {
	case <-h.queue.Drained():
		return true
	default:
		return false
	}
}

// inUse reports whether the key has a tenure.
func (h *house) inUse() (used bool) {
	h.queue.Each(func(string, *tenure.Tenure, int) { used = true })
	return used
}

// guest is one caller, which does with turn and tenure what a Locker's does.
type guest struct {
	house  *house
	ask    tenure.Ask
	ctx    context.Context
	cancel context.CancelFunc
	turn   local.Turn[*tenure.Tenure]
	tenure *tenure.Tenure
	use    tenure.Use

	mu    sync.Mutex
	is    string // waiting, in, out, lost, or why it was not let in
	times int    // LeaseLost was called
}

func (h *house) guest(ask tenure.Ask) *guest {
	g := &guest{house: h, ask: ask}
	g.use.Owner = g
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// comes lets a guest in, or leaves it waiting. For use in a synctest bubble, as all of its methods.
func (h *house) comes(mode distributed.Mode) *guest { return h.comesAs(tenure.Ask{Mode: mode}) }

func (h *house) comesAs(ask tenure.Ask) *guest {
	g := h.guest(ask)
	g.set("waiting")
	go func() { g.set(outcome(g.enter())) }()
	synctest.Wait()
	return g
}

func (g *guest) set(state string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.is != "lost" {
		g.is = state
	}
}

func (g *guest) state() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.is
}

func (g *guest) losses() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.times
}

// enter goes through both tiers.
func (g *guest) enter() error {
	ask := local.Ask{Shared: g.ask.Mode == shared, NoWait: g.ask.NoWait, Limit: local.Unlimited, Deadline: g.ask.Deadline}
	if err := g.house.queue.Enter(g.ctx, &g.turn, key, ask); err != nil {
		return err
	}
	g.tenure = g.turn.Baton()
	for {
		switch err := g.tenure.Begin(g.ctx, &g.use, g.ask); err {
		case nil:
			if ask.Shared {
				g.turn.Share()
			}
			return nil
		case tenure.ErrDrain:
			if err := g.turn.Again(g.ctx, ask); err != nil {
				return err
			}
		default:
			g.pass()
			return err
		}
	}
}

func (g *guest) pass() {
	if g.turn.Pass() == local.Kept {
		g.tenure.Release(&g.turn)
	}
}

// goes ends the stay and reports whether the lease was held to the end.
func (g *guest) goes() (kept bool) {
	in, kept := g.tenure.End(&g.use, time.Now())
	if in {
		g.set("out")
		g.pass()
	}
	synctest.Wait()
	return kept
}

// goesAndWaits does so, too, and returns the answer to the release.
func (g *guest) goesAndWaits(ctx context.Context) (err error) {
	g.tenure.End(&g.use, time.Now())
	g.set("out")
	if g.turn.Pass() == local.Kept {
		err = g.tenure.ReleaseAndWait(ctx, &g.turn)
	}
	return err
}

func (g *guest) givesUp() {
	g.cancel()
	synctest.Wait()
}

// LeaseLost implements tenure.Owner.
func (g *guest) LeaseLost() {
	g.mu.Lock()
	g.is = "lost"
	g.times++
	g.mu.Unlock()
	g.pass()
}

func outcome(err error) string {
	for _, o := range []struct {
		err  error
		word string
	}{
		{nil, "in"}, {local.ErrBusy, "busy"}, {local.ErrTimeout, "local timeout"}, {local.ErrClosed, "local closed"},
		{tenure.ErrTimeout, "timeout"}, {tenure.ErrClosed, "closed"}, {context.Canceled, "canceled"},
		{distributed.ErrHeld, "held"}, {distributed.ErrUnavailable, "unavailable"},
	} {
		if errors.Is(err, o.err) {
			return o.word
		}
	}
	return err.Error()
}

func states(guests ...*guest) string {
	words := make([]string, len(guests))
	for i, g := range guests {
		words[i] = g.state()
	}
	return strings.Join(words, " ")
}

// bubble runs a test in a synctest bubble.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

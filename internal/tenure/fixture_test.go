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
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

const (
	ttl = 3 * time.Second
	key = "order:product:1000"

	exclusive = distributed.Exclusive
	shared    = distributed.Shared
)

// fixture is one instance: a local queue, tenures, and a backend.
type fixture struct {
	t     *testing.T
	group *tenure.Group
	queue *local.Queue[*tenure.Tenure]

	mu     sync.Mutex
	failed []error

	arrived []*caller

	meanwhile, hold func() // called before and after Idle has got a turn; nil: not
}

type tenureOf = tenure.Tenure

var (
	exclusively = tenure.Ask{Mode: exclusive} // the usual way to ask
	noWait      = tenure.Ask{Mode: exclusive, NoWait: true}
)

type option = func(*tenure.Config)

// newFixture returns a fixture with the defaults of a Locker, changed by the options.
func newFixture(t *testing.T, backend distributed.Backend, opts ...option) *fixture {
	f := &fixture{t: t}
	c := tenure.Config{Backend: backend, Instance: "here", TTL: ttl, MaxHandoffs: 128, MaxTenure: 100 * time.Millisecond,
		Queue: f, Failed: f.note}
	for _, o := range opts {
		o(&c)
	}
	f.group = tenure.NewGroup(c)
	f.queue = local.New(f.group.New)
	return f
}

func named(instance string) option                         { return func(c *tenure.Config) { c.Instance = instance } }
func handoffs(n int) option                                { return func(c *tenure.Config) { c.MaxHandoffs = n } }
func longest(d time.Duration) option                       { return func(c *tenure.Config) { c.MaxTenure = d } }
func lingering(d time.Duration) option                     { return func(c *tenure.Config) { c.Linger = d } }
func (f *fixture) Unpin(key string, lane int)              { f.queue.Unpin(key, lane) }
func (f *fixture) Others(key string, lane int) []*tenureOf { return f.queue.Others(key, lane) }
func (f *fixture) note(_ any, _ string, e error) {
	f.mu.Lock()
	f.failed = append(f.failed, e)
	f.mu.Unlock()
}
func (f *fixture) failures() (all []error) { f.mu.Lock(); defer f.mu.Unlock(); return f.failed }

func (f *fixture) Idle(key string, lane int) (tenure.Turn, bool) {
	if f.meanwhile != nil {
		f.meanwhile()
	}
	turn := new(local.Turn[*tenure.Tenure])
	got := f.queue.Idle(turn, key, lane)
	if hold := f.hold; got && hold != nil {
		f.hold = nil
		hold()
	}
	return turn, got
}

// shut is what a Locker's Close begins with.
func (f *fixture) shut() {
	f.queue.Close()
	f.group.Close()
	var all []*tenure.Tenure
	f.queue.Each(func(_ string, _ int, t *tenure.Tenure, _ int) { all = append(all, t) })
	for _, t := range all {
		t.EndLinger()
	}
}

// close shuts the fixture and requires that nothing is left in it.
func (f *fixture) close() {
	f.t.Helper()
	f.shut()
	synctest.Wait()
	require.True(f.t, f.drained(), "something is left at the end")
	f.group.Stop()
}

func (f *fixture) drained() bool {
	select {
	case <-f.queue.Drained():
		return true
	default:
		return false
	}
}

// inUse reports whether the key has a tenure.
func (f *fixture) inUse() (used bool) {
	f.queue.Each(func(string, int, *tenure.Tenure, int) { used = true })
	return used
}

// requireReleased requires that the lease has been released, once, and that the key has no tenure.
func (f *fixture) requireReleased(l *fakeLease) {
	f.t.Helper()
	require.Equal(f.t, 1, l.releases())
	require.False(f.t, f.inUse())
}

// requireUnder requires that all of the callers are in, under that lease.
func (f *fixture) requireUnder(l distributed.Lease, callers ...*caller) {
	f.t.Helper()
	for _, c := range callers {
		require.Equal(f.t, "in", c.state())
		require.Same(f.t, l, c.use.Lease())
	}
}

// caller does with turn and tenure what a caller of a Locker does.
type caller struct {
	fixture *fixture
	ask     tenure.Ask
	ctx     context.Context
	cancel  context.CancelFunc
	turn    local.Turn[*tenure.Tenure]
	tenure  *tenure.Tenure
	use     tenure.Use

	mu    sync.Mutex
	is    string // waiting, in, out, lost, or why it was not let in
	times int    // LeaseLost was called
}

func (f *fixture) newCaller(ask tenure.Ask) *caller {
	c := &caller{fixture: f, ask: ask}
	c.use.Owner = c
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// arrive starts a caller, which gets in or waits. For use in a synctest bubble, as are all methods of caller.
func (f *fixture) arrive(mode distributed.Mode) *caller { return f.arriveAs(tenure.Ask{Mode: mode}) }

func (f *fixture) arriveAs(ask tenure.Ask) *caller {
	c := f.newCaller(ask)
	f.arrived = append(f.arrived, c)
	c.set("waiting")
	go func() { c.set(outcome(c.enter())) }()
	synctest.Wait()
	return c
}

func (c *caller) set(state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is != "lost" {
		c.is = state
	}
}

func (c *caller) state() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.is
}

func (c *caller) losses() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.times
}

// enter goes through both tiers.
func (c *caller) enter() error {
	ask := local.Ask{Shared: c.ask.Mode == shared, NoWait: c.ask.NoWait, Limit: local.Unlimited, Deadline: c.ask.Deadline}
	if err := c.fixture.queue.Enter(c.ctx, &c.turn, key, ask); err != nil {
		return err
	}
	c.tenure = c.turn.Baton()
	for {
		switch err := c.tenure.Begin(c.ctx, &c.use, c.ask); err {
		case nil:
			if ask.Shared {
				c.turn.Share()
			}
			return nil
		case tenure.ErrDrain:
			if err := c.turn.Again(c.ctx, ask); err != nil {
				return err
			}
		default:
			c.pass()
			return err
		}
	}
}

func (c *caller) pass() {
	switch c.turn.Pass() {
	case local.Kept:
		c.tenure.Release(&c.turn)
	case local.Barred:
		c.tenure.Yield(&c.turn)
	}
}

// leave ends the caller's use of the lease and reports whether that was held to the end.
func (c *caller) leave() (kept bool) {
	in, kept := c.tenure.End(&c.use, time.Now())
	if in {
		c.set("out")
		c.pass()
	}
	synctest.Wait()
	return kept
}

// leaveAndWait is leave that returns the answer to the release.
func (c *caller) leaveAndWait(ctx context.Context) (err error) {
	c.tenure.End(&c.use, time.Now())
	c.set("out")
	if c.turn.Pass() == local.Kept {
		err = c.tenure.ReleaseAndWait(ctx, &c.turn)
	}
	return err
}

func leave(callers ...*caller) {
	for _, c := range callers {
		c.leave()
	}
}

func (c *caller) quit() {
	c.cancel()
	synctest.Wait()
}

// LeaseLost implements tenure.Owner.
func (c *caller) LeaseLost() {
	c.mu.Lock()
	c.is = "lost"
	c.times++
	c.mu.Unlock()
	c.pass()
}

// Await implements tenure.Owner.
func (c *caller) Await(own bool) <-chan struct{} {
	if own {
		c.turn.Aside()
		return nil
	}
	return c.turn.Await()
}

// Follow implements tenure.Owner.
func (c *caller) Follow(ctx context.Context, deadline time.Time) error {
	return c.turn.Follow(ctx, deadline)
}

// Alone implements tenure.Owner.
func (c *caller) Alone(ctx context.Context, deadline time.Time) error {
	return c.turn.Alone(ctx, deadline)
}

// Awaited implements tenure.Owner.
func (c *caller) Awaited() { c.turn.Received() }

// Readmit implements tenure.Owner.
func (c *caller) Readmit() { c.turn.Reopen() }

func outcome(err error) string {
	for _, o := range []struct {
		err  error
		word string
	}{
		{nil, "in"}, {local.ErrBusy, "busy"}, {local.ErrTimeout, "local timeout"}, {local.ErrClosed, "local closed"},
		{tenure.ErrTimeout, "timeout"}, {tenure.ErrClosed, "closed"}, {context.Canceled, "canceled"},
		{tenure.ErrFull, "full"}, {distributed.ErrHeld, "held"}, {distributed.ErrUnavailable, "unavailable"},
	} {
		if errors.Is(err, o.err) {
			return o.word
		}
	}
	return err.Error()
}

func states(callers ...*caller) string {
	words := make([]string, len(callers))
	for i, c := range callers {
		words[i] = c.state()
	}
	return strings.Join(words, " ")
}

// bubble runs a test in a synctest bubble. Without a name it is t itself.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	if name == "" {
		synctest.Test(t, test)
		return
	}
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

type scripted = func(t *testing.T, f *fixture, fb *fakeBackend)

// over runs a test in a bubble, with one instance over a scripted backend. At its end those who are in leave, and nothing may be left.
func over(t *testing.T, name string, test scripted) { with().over(t, name, test) }

// options are what the instance is made with.
type options []option

func with(opts ...option) options { return opts }

func (o options) over(t *testing.T, name string, test scripted) {
	bubble(t, name, func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb, o...)
		test(t, f, fb)
		f.empty()
		f.close()
	})
}

// pair runs a test in a bubble, over two instances that share a backend. At its end those who are in leave, and nothing may be left.
func pair(t *testing.T, name string, test func(t *testing.T, b *memlock.Backend, here, there *fixture), opts ...option) {
	bubble(t, name, func(t *testing.T) {
		b := memlock.New()
		here, there := newFixture(t, b, opts...), newFixture(t, b, named("there"))
		test(t, b, here, there)
		for range 2 { // those who leave here let others in there
			here.empty()
			there.empty()
		}
		here.close()
		there.close()
		require.NoError(t, b.Close())
	})
}

// empty has those leave that are in, and then those whom they have let in.
func (f *fixture) empty() {
	for range f.arrived {
		for _, c := range f.arrived {
			if c.state() == "in" {
				c.leave()
			}
		}
	}
}

// gate returns a channel. open closes it, and returns when all has been done that this sets off.
func gate() (c <-chan struct{}, open func()) {
	closed := make(chan struct{})
	return closed, func() { close(closed); synctest.Wait() }
}

// sleep returns when all has been done that happens in the meantime.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

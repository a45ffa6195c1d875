package local_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/local"
)

type baton struct{ key string }

type (
	queue = local.Queue[*baton]
	ask   = local.Ask
)

func newQueue() *queue {
	return local.New(func(key string, _ int, _ *baton) *baton { return &baton{key: key} })
}

var (
	exclusive = ask{Limit: local.Unlimited}
	shared    = ask{Limit: local.Unlimited, Shared: true}
	noWait    = ask{Limit: local.Unlimited, NoWait: true}
)

// within returns a with a deadline d from now.
func within(d time.Duration, a ask) ask {
	a.Deadline = time.Now().Add(d)
	return a
}

// caller is a caller of the queue, on its own goroutine while it waits. For use in a synctest bubble.
type caller struct {
	turn   local.Turn[*baton]
	cancel context.CancelFunc
	ctx    context.Context
	state  string // waiting, in, out, or what refused it
}

// arrives lets a new caller enter and returns when it holds the turn, waits, or has been refused.
func arrives(q *queue, key string, a ask) *caller {
	c := new(caller)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.waits(func() error { return q.Enter(c.ctx, &c.turn, key, a) })
	return c
}

// waits calls f on a goroutine of the caller's own.
func (c *caller) waits(f func() error) {
	c.state = "waiting"
	go func() { c.state = outcome(f()) }()
	synctest.Wait()
}

// arrive lets callers enter one after the other.
func arrive(q *queue, key string, asks ...ask) []*caller {
	all := make([]*caller, len(asks))
	for i, a := range asks {
		all[i] = arrives(q, key, a)
	}
	return all
}

func (c *caller) again(a ask) { c.waits(func() error { return c.turn.Again(c.ctx, a) }) }

func (c *caller) givesUp() {
	c.cancel()
	synctest.Wait()
}

func (c *caller) passes() local.Outcome {
	o := c.turn.Pass()
	if o == local.Passed {
		c.state = "out"
	}
	synctest.Wait()
	return o
}

func (c *caller) leaves() bool {
	left := c.turn.Leave()
	if left {
		c.state = "out"
	}
	synctest.Wait()
	return left
}

func (c *caller) shares() {
	c.turn.Share()
	synctest.Wait()
}

// outcome is the error of Enter as a word.
func outcome(err error) string {
	for _, o := range []struct {
		err  error
		word string
	}{
		{nil, "in"}, {local.ErrQueueFull, "full"}, {local.ErrBusy, "busy"}, {local.ErrTimeout, "timeout"},
		{local.ErrClosed, "closed"}, {local.ErrRides, "riding"}, {context.Canceled, "canceled"}, {context.DeadlineExceeded, "deadline"},
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
		words[i] = c.state
	}
	return strings.Join(words, " ")
}

// inUse returns the number of keys in use and of waiters.
func inUse(q *queue) (keys, waiting int) {
	q.Each(func(_ string, _ int, _ *baton, n int) {
		keys++
		waiting += n
	})
	return keys, waiting
}

func requireUnused(t *testing.T, q *queue) {
	t.Helper()
	keys, waiting := inUse(q)
	require.Zero(t, keys, "keys in use")
	require.Zero(t, waiting, "callers waiting")
}

// drained reports whether Drained is closed.
func drained(q *queue) bool {
	select {
	case <-q.Drained():
		return true
	default:
		return false
	}
}

// bubble runs a test in a synctest bubble, and ends all waits at the end. Without a name it is t itself.
func bubble(t *testing.T, name string, test func(t *testing.T, q *queue)) {
	run := func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue()
			test(t, q)
			end(q)
		})
	}
	if name == "" {
		run(t)
		return
	}
	t.Run(name, run)
}

// end ends all waits, so that their goroutines return.
func end(q *queue, holders ...*caller) {
	q.Close()
	for _, h := range holders {
		h.leaves()
	}
	synctest.Wait()
}

package etcdlock

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/wllock/wllock/distributed/driver"
)

const (
	// gridPerBeat is the number of moments in H at which looks without an event are gathered, so that they share a request.
	gridPerBeat = 8
	// checkedAtOnce is how many attempts share a request, with two reads each: a server takes 128 by default.
	checkedAtOnce = 60
)

// Look implements driver.Driver. Those that had an event look at their queue, one at a time. The others share a request: waiters every H,
// in case that a watch is silent (rule E3), and holders every T/3 while others wait, to learn that these have gone.
func (d half) Look(ctx context.Context, some []*attempt) {
	var checks []*attempt
	for _, a := range some {
		switch how := a.Wire.nextLook(); {
		case how == lookChecks:
			checks = append(checks, a)
		case how == lookWatches: // most holds are too short to pay for a watch
		case len(some) > 1:
			a.Wire.poke()
		case how == lookCounts:
			a.Wire.count(ctx)
		default:
			a.Wire.advance(ctx)
		}
	}
	if len(checks) > 0 {
		checks[0].Wire.s.check(ctx, checks)
	}
}

type lookKind uint8

const (
	lookChecks  lookKind = iota
	lookWatches          // a holder that knows what there is has set its watch instead
	lookCounts
	lookAdvances
)

// nextLook returns how the attempt is to be looked at.
func (c *claim) nextLook() lookKind {
	waits, shared := c.a.Waiting(), c.a.Shares()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case waits && (c.fired || c.follows == ""):
		c.fired = false
		return lookAdvances
	case waits:
		return lookChecks
	case c.counts:
		return lookCounts
	case c.seen == 0 || len(c.watching) > 0:
		return lookChecks
	}
	if c.waiter != "" {
		c.watchWaiter(c.waiter, c.seen)
	} else {
		c.watchRivals(shared)
	}
	c.a.LookIn(c.nextCheck(shared))
	return lookWatches
}

// advance looks whether it is the waiter's turn.
func (c *claim) advance(ctx context.Context) {
	s, err := c.stands(ctx, c.look)
	switch {
	case errors.Is(err, errRobbed):
		c.a.Gone()
	case err == nil:
		c.a.Stands(s)
	}
}

// nextCheck plans the next look of a holder that has a watch. That of a shared one does not tell of its own key, and one that is not
// confirmed tells nothing. The caller holds mu.
func (c *claim) nextCheck(shared bool) time.Duration {
	if shared || c.seen == 0 || len(c.watching) == 0 || !c.b.watches.works(c.watching[0]) {
		return c.checkInterval()
	}
	return driver.Never
}

// check asks for all with one request.
func (s *session) check(ctx context.Context, batch []*attempt) {
	req, asked := new(pb.TxnRequest), make([]string, len(batch))
	for i, a := range batch {
		var second *pb.RequestOp
		asked[i], second = a.Wire.question()
		req.Success = append(req.Success, opGet(a.Wire.name), second)
	}
	got, err := s.txn(ctx, "check", req)
	if err != nil {
		return
	}
	for i, a := range batch {
		mine, second := got.Responses[2*i].GetResponseRange(), got.Responses[2*i+1].GetResponseRange()
		if len(mine.Kvs) == 0 {
			a.Gone()
			continue
		}
		a.Wire.checked(asked[i], got.Header.Revision, second)
	}
}

// question is what a check asks besides whether the key is there: of a waiter whether the key that it waits for is, of a
// holder who is behind it; then what is "".
func (c *claim) question() (what string, op *pb.RequestOp) {
	waits, shared := c.a.Waiting(), c.a.Shares()
	c.mu.Lock()
	defer c.mu.Unlock()
	if waits {
		return c.follows, opValue(c.follows)
	}
	return "", opAfter(c.rivals(shared), c.revision)
}

// checked takes the answer about a key that is there.
func (c *claim) checked(asked string, revision int64, second *pb.RangeResponse) {
	if asked != "" {
		c.a.Stands(driver.Standing{Kind: driver.Queued})
		if c.hasGone(second) {
			c.poke()
		}
		return
	}
	if waiter, unsure := c.waits(c.a.Shares(), second); unsure {
		c.mu.Lock()
		c.counts = true
		c.mu.Unlock()
		c.a.Poke()
	} else {
		c.behind(revision, waiter)
	}
}

// behind notes who waits behind a holder; "": nobody, and a watch will tell.
func (c *claim) behind(revision int64, waiter string) {
	shared := c.a.Shares()
	c.mu.Lock()
	switch c.seen = 0; {
	case c.worthWatching(shared, waiter):
		c.watchWaiter(waiter, revision)
	case waiter != "":
		c.unwatch()
	default:
		if c.waiter != "" {
			c.unwatch()
		}
		c.seen = revision
		if len(c.watching) == 0 {
			c.watchRivals(shared)
		}
	}
	next := c.nextCheck(shared)
	c.mu.Unlock()
	c.a.Stands(driver.Standing{Kind: driver.Granted, Contended: waiter != "", Next: next})
}

// count is the look of a holder that shares the lock when there are permits behind it: which of them wait?
func (c *claim) count(ctx context.Context) {
	c.mu.Lock()
	c.counts = false
	c.mu.Unlock()
	v, err := c.lookAtAll(ctx)
	switch {
	case errors.Is(err, errRobbed):
		c.a.Gone()
	case err == nil:
		c.behind(v.revision, v.waiter)
	}
}

// hasGone reports that the key that the waiter waits for has gone, perhaps to come again behind it, or that its lease was
// downgraded.
func (c *claim) hasGone(got *pb.RangeResponse) bool {
	if len(got.Kvs) == 0 {
		return true
	}
	mine, _ := c.key()
	return got.Kvs[0].CreateRevision > mine || c.a.Shares() && isDowngraded(got.Kvs[0])
}

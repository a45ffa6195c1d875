package etcdlock

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/parts"
)

// watchPause is how long after its grant a holder has a watch set: most holds are shorter, and never pay for it.
const watchPause = 2 * time.Millisecond

// keptFor is how long a renewal makes a lease last, as the Keeper knows it: so it renews when half of the TTL is left. After
// a renewal three quarters are.
func keptFor(ttl time.Duration) time.Duration { return ttl * 3 / 4 }

// Share implements driver.Driver: the key is written a second time. Readers that wait for it watch it.
func (d half) Share(ctx context.Context, a *attempt) (driver.Standing, error) {
	c := &a.Wire
	revision, err := c.ifOurs(ctx, "downgrade", opPut(c.name, c.value, c.s.lease()))
	if err != nil {
		return driver.Standing{}, err
	}
	c.mu.Lock()
	c.seen = 0 // others count as waiters now
	c.mu.Unlock()
	block, err := fences.Block(revision, false)
	return driver.Standing{Fences: block, Next: driver.Now}, err
}

// Refill implements driver.Driver: any change has a new revision. It is made only if our key is there, so it comes before the
// deletion of that, which lets the next one in.
func (d half) Refill(ctx context.Context, a *attempt) (driver.Block, error) {
	c := &a.Wire
	revision, err := c.ifOurs(ctx, "refill", opPut(c.s.writeKey(), "", c.s.lease()))
	if err != nil {
		return driver.Block{}, err
	}
	return fences.Block(revision, a.Limit > 0)
}

// ifOurs changes something provided that the attempt's key is there and was not moved, and returns the revision of the change.
func (c *claim) ifOurs(ctx context.Context, what string, op *pb.RequestOp) (int64, error) {
	ours, _ := c.key()
	got, err := c.s.txn(ctx, what, &pb.TxnRequest{
		Compare: []*pb.Compare{ifCreated(c.name, ours), ifValue(c.name, c.value)}, Success: []*pb.RequestOp{op},
	})
	switch {
	case err != nil:
		return 0, err
	case !got.Succeeded:
		return 0, distributed.ErrLeaseLost
	}
	return got.Header.Revision, nil
}

const (
	// removedAtOnce is how many keys share a request: a server takes 128 by default.
	removedAtOnce = 60
	// maxRemoving is how many of these requests are under way at a time.
	maxRemoving = 8
	// quickTries are made one after the other; the next ones with the session's keepalives.
	quickTries = 3
)

// Drop implements driver.Driver: one request, or two (rule C2). A key that was never created needs none.
func (d half) Drop(ctx context.Context, some []*attempt) {
	var clean, dirty []*attempt
	for _, a := range some {
		switch revision, unsure := a.Wire.key(); {
		case a.Wire.own != 0: // of a Transfer that has failed: without this etcd lease it does nothing any more
			if err := a.Wire.s.revoke(ctx, a.Wire.own); err == nil {
				a.Dropped(driver.Removed)
			} else {
				undropped(a, err)
			}
		case unsure:
			dirty = append(dirty, a)
		case revision != 0:
			clean = append(clean, a)
		default:
			a.Wire.gone()
			a.Dropped(driver.Missing)
		}
	}
	s := some[0].Wire.s
	s.drop(ctx, clean, false)
	s.drop(ctx, dirty, true)
}

// drop deletes keys of the session with one request, which it repeats a few times.
func (s *session) drop(ctx context.Context, all []*attempt, dirty bool) {
	for tries := 1; len(all) > 0; tries++ {
		got, err := s.txn(ctx, "delete", s.deletion(all, dirty))
		if err == nil {
			s.dropped(got, all, dirty)
			return
		}
		for _, a := range all {
			undropped(a, err)
		}
		if !isUnknown(err) || tries >= quickTries || ctx.Err() != nil {
			return
		}
		parts.Pause(ctx, firstPause)
	}
}

// undropped takes the error of a deletion.
func undropped(a *attempt, err error) {
	switch {
	case isUnknown(err):
		a.Dropped(driver.Unknown)
	case errors.Is(err, distributed.ErrRefused):
		a.DropRefused(err)
	}
}

// deletion deletes each key if it is the one that we know: by its create revision, or if that is not known by its value. The guard is
// written with those that may be created yet: then they will not be (rule E1).
func (s *session) deletion(all []*attempt, dirty bool) *pb.TxnRequest {
	req := new(pb.TxnRequest)
	for _, a := range all {
		ours := a.Wire.deletion()
		if dirty {
			ours.Compare = []*pb.Compare{ifValue(a.Wire.name, a.Wire.value)}
		}
		if len(all) == 1 && !dirty {
			return ours
		}
		req.Success = append(req.Success, opTxn(ours))
	}
	if dirty {
		req.Success = append(req.Success, opPut(s.guardKey(), "", s.lease()))
	}
	return req
}

// dropped takes the answer.
func (s *session) dropped(got *pb.TxnResponse, all []*attempt, dirty bool) {
	if dirty {
		s.guarded(got.Header.Revision)
	}
	for i, a := range all {
		was := got.Succeeded
		if len(all) > 1 || dirty {
			was = got.Responses[i].GetResponseTxn().GetSucceeded()
		}
		a.Wire.gone()
		a.Dropped(found(was))
	}
}

func found(was bool) driver.Outcome {
	if was {
		return driver.Removed
	}
	return driver.Missing
}

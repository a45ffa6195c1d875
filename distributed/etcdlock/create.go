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

// half is the Backend as its engine sees it.
type half struct{ *Backend }

// Prepare implements driver.Driver.
func (d half) Prepare(ctx context.Context, a *attempt) error {
	s, err := d.forTTL(ctx, a.TTL)
	if err == nil {
		a.Wire.init(a, s)
	}
	return err
}

// Ended implements driver.Driver.
func (d half) Ended(a *attempt) { a.Wire.end() }

// Close implements driver.Driver.
func (d half) Close() {
	d.sessions.Close()
	d.cancel()
}

// Enter implements driver.Driver.
func (d half) Enter(ctx context.Context, a *attempt, prev *driver.Prev[claim]) (driver.Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Window)
	defer cancel()
	c := &a.Wire
	if before := prev.Mine(); before != nil {
		if _, dirty := before.Wire.key(); dirty || a.NoWait {
			prev.GiveUp() // its deletion has to write the guard, or to come first
		}
	}
	s, err := c.stands(ctx, func(ctx context.Context) (*view, error) {
		v, err := c.create(ctx, prev)
		if err == nil && (v == nil || v.undecided) {
			v, err = c.lookUntilAnswered(ctx)
		}
		return v, err
	})
	if err == nil && a.NoWait && s.Kind == driver.Queued {
		err = distributed.ErrHeld
	}
	refused, exists := errors.Is(err, distributed.ErrHeld), c.exists()
	if err != nil && !exists {
		c.gone()
	}
	switch {
	case refused && exists:
		return s, distributed.Held(c.refusedBy)
	case refused:
		return driver.Standing{Kind: driver.Refused, Holder: c.refusedBy}, nil
	}
	return s, err
}

// stands is what a look has found.
func (c *claim) stands(ctx context.Context, look func(context.Context) (*view, error)) (driver.Standing, error) {
	sent := time.Now()
	v, err := look(ctx)
	if err == nil {
		err = v.err
	}
	if err != nil {
		return driver.Standing{}, err
	}
	if !v.first {
		c.follow(v)
		return driver.Standing{Kind: driver.Queued}, nil
	}
	return c.granted(ctx, sent, v)
}

// create puts the attempt's key, deletes that of prev if it is the one that we know, and reads who is last in line, in one
// transaction. A nil view without an error: the key exists by an earlier try, and one has to look.
//
// A try that was not answered has been carried out or not, or will be. It is repeated under the same name: if the key exists, the
// repeat finds it; if an earlier try comes after the repeat, it finds the key and does nothing. One that comes after the key
// was deleted again finds the guard changed: see dirty (rule E1). That it is ours tells its value.
func (c *claim) create(ctx context.Context, prev *driver.Prev[claim]) (*view, error) {
	seen := int64(0)
	for {
		if err := prev.Wait(ctx); err != nil {
			return nil, err
		}
		got, err := c.s.txn(ctx, "enter", c.createRequest(prev, seen))
		switch {
		case isUnknown(err):
			c.unsure()
			if ctx.Err() != nil {
				return nil, err
			}
			parts.Pause(ctx, firstPause)
			continue
		case err != nil:
			return nil, err
		case got.Succeeded:
			if prev.Mine() != nil {
				settle(prev, found(got.Responses[0].GetResponseTxn().GetSucceeded()))
			}
			return c.created(got), nil
		}
		var done bool
		if done, err = c.refused(ctx, got, prev, &seen); done {
			return nil, err
		}
	}
}

// settle notes what became of the lease before. A try of the request that comes later finds another create revision.
func settle(prev *driver.Prev[claim], found driver.Outcome) {
	if before := prev.Mine(); before != nil {
		before.Wire.gone()
		prev.Settle(found)
	}
}

// createRequest returns the transaction. seen is of a request with NoWait: see ifNobody.
func (c *claim) createRequest(prev *driver.Prev[claim], seen int64) *pb.TxnRequest {
	guard := c.s.guardKey()
	req := &pb.TxnRequest{
		Compare: []*pb.Compare{ifCreated(c.name, 0), ifModified(guard, c.s.guard.Load())},
		Success: []*pb.RequestOp{c.opBefore(), opPut(c.name, c.value, c.s.lease())},
		Failure: []*pb.RequestOp{opValue(c.name), opGet(guard)},
	}
	if before := prev.Mine(); before != nil {
		req.Success = append([]*pb.RequestOp{opTxn(before.Wire.deletion())}, req.Success...)
	}
	if c.a.NoWait {
		req.Compare = append(req.Compare, c.ifNobody(seen))
		if c.a.Shares() || c.readsAll {
			req.Failure = append(req.Failure, c.b.opQueue(c.a.Key))
		} else {
			req.Failure = append(req.Failure, opFirst(c.dir))
		}
	}
	return req
}

// opBefore reads who is before a key that is put next: all, if a permit has to be counted, else the last that may be in the way.
func (c *claim) opBefore() *pb.RequestOp {
	if c.a.Limit > 0 {
		return opAll(c.dir)
	}
	return opLast(c.rivals(c.a.Shares()), 0)
}

// ifNobody holds if nobody is in the way of a request with NoWait, which is not written otherwise: it disturbs nobody. An
// exclusive one wants no key at all at first, and so does a permit; a reader no writer but those whose lease was downgraded, which is
// a second version of the key, and no permit. If that does not hold, the queue has been read at the revision seen, and the request
// would have been admitted as its last: then nobody must have come since. Those who have gone make no difference.
func (c *claim) ifNobody(seen int64) *pb.Compare {
	nobody := ifCreated(c.dir, 0)
	switch {
	case seen > 0:
		nobody = ifCreated(c.dir, seen+1)
		nobody.Result = pb.Compare_LESS
	case c.a.Shares() && c.a.Limit == 0:
		nobody = &pb.Compare{
			Key: []byte(c.rivals(true)), Target: pb.Compare_VERSION, Result: pb.Compare_NOT_EQUAL,
			TargetUnion: &pb.Compare_Version{Version: 1},
		}
	}
	nobody.RangeEnd = endOf(string(nobody.Key))
	return nobody
}

// created takes the answer to a create. The revision is that of the transaction: all who held the lock before have released
// it by then.
func (c *claim) created(got *pb.TxnResponse) *view {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision = got.Header.Revision
	before := got.Responses[len(got.Responses)-2].GetResponseRange()
	if c.a.Limit == 0 {
		return c.viewOf(got.Header.Revision, before, nil)
	}
	other := sameFormat(c.dir, before.GetKvs())
	q := requestsOf(c.dir, before.GetKvs())
	v := c.fullView(c.revision, append(q, request{c.name, c.revision, driver.Asked{Shared: true, Limit: c.a.Limit}}), len(q))
	v.created, v.err = true, other
	return v
}

// refused takes the answer to a create that was not carried out. It reports whether that is the end: the key exists, or
// somebody is in the way. It sets seen if nobody was, at that revision, for the next try.
func (c *claim) refused(ctx context.Context, got *pb.TxnResponse, prev *driver.Prev[claim], seen *int64) (done bool, err error) {
	mine, guard := got.Responses[0].GetResponseRange(), got.Responses[1].GetResponseRange()
	if len(mine.Kvs) > 0 && string(mine.Kvs[0].Value) != c.value {
		return c.rename(ctx)
	}
	if len(mine.Kvs) > 0 {
		c.mu.Lock()
		c.revision = mine.Kvs[0].CreateRevision
		c.mu.Unlock()
		settle(prev, driver.Removed) // by the try before
		return true, nil
	}
	before := c.s.guard.Load()
	if len(guard.Kvs) > 0 {
		c.s.guarded(guard.Kvs[0].ModRevision)
	}
	if !c.a.NoWait || c.s.guard.Load() != before {
		return false, nil
	}
	kvs := got.Responses[2].GetResponseRange().Kvs
	if err := sameFormat(c.dir, kvs); err != nil {
		return true, err
	}
	queue := queueOf(kvs)
	all := c.a.Shares() || c.readsAll
	switch {
	case all && c.isNext(requestsOf(c.dir, queue)):
		*seen = got.Header.Revision
		return false, nil
	case !all && len(queue) == 0: // the oldest key is somebody else's, or has just gone
		c.readsAll = true
		return false, nil
	}
	if len(queue) > 0 {
		c.refusedBy = instanceIn(queue[0].Value)
	}
	return true, distributed.ErrHeld
}

// rename gives the claim another name, and in the end a new one: another process uses this one, a copy of ours, which knows the same free
// ones. The name is not used again. A create of it that was not answered must not be carried out any more, so the guard is written first.
func (c *claim) rename(ctx context.Context) (done bool, err error) {
	if _, dirty := c.key(); dirty {
		got, err := c.s.txn(ctx, "delete", c.s.deletion([]*attempt{c.a}, true))
		if err != nil {
			return true, err
		}
		c.s.guarded(got.Header.Revision)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dirty, c.name = false, c.newName()
	return false, nil
}

package etcdlock

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/wllock/wllock/distributed"
)

// create puts the attempt's key, deletes that of prev if it is the one that we know, and reads who is last in line, in one
// transaction. A nil view without an error: the key exists by an earlier try, and one has to look.
//
// A try that was not answered has been carried out or not, or will be. It is repeated under the same name: if the key exists, the
// repeat finds it; if an earlier try comes after the repeat, it finds the key and does nothing. One that comes after the key
// was deleted again finds the guard changed: see dirty (rule E1). That it is ours tells its value.
func (a *attempt) create(ctx context.Context, prev *prev) (*view, error) {
	if a.noWait {
		if err := prev.release(ctx); err != nil {
			return nil, err
		}
	}
	seen := int64(0)
	for {
		if err := prev.settled(ctx); err != nil {
			return nil, err
		}
		got, err := a.s.txn(ctx, "enter", a.createRequest(prev, seen))
		switch {
		case isUnknown(err):
			a.unsure()
			if ctx.Err() != nil {
				return nil, err
			}
			pause(ctx, firstPause)
			continue
		case err != nil:
			return nil, err
		case got.Succeeded:
			prev.replaced(got.Responses[0])
			return a.created(got), nil
		}
		var done bool
		if done, err = a.refused(got, prev, &seen); done {
			return nil, err
		}
	}
}

// unsure notes that a create may still be carried out.
func (a *attempt) unsure() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dirty = true
}

// createRequest returns the transaction. seen is of a request with NoWait: see ifNobody.
func (a *attempt) createRequest(prev *prev, seen int64) *pb.TxnRequest {
	guard := a.s.guardKey()
	req := &pb.TxnRequest{
		Compare: []*pb.Compare{ifCreated(a.name, 0), ifModified(guard, a.s.guardRevision())},
		Success: []*pb.RequestOp{a.opBefore(), opPut(a.name, a.value, a.s.lease())},
		Failure: []*pb.RequestOp{opValue(a.name), opGet(guard)},
	}
	if prev != nil && prev.mine {
		req.Success = append([]*pb.RequestOp{opTxn(prev.l.a.deletion())}, req.Success...)
	}
	if a.noWait {
		req.Compare = append(req.Compare, a.ifNobody(seen))
		if a.shared() || a.readsAll {
			req.Failure = append(req.Failure, a.b.opQueue(a.lock))
		} else {
			req.Failure = append(req.Failure, opFirst(a.dir))
		}
	}
	return req
}

// opBefore reads who is before a key that is put next: all, if a permit has to be counted, else the last that may be in the way.
func (a *attempt) opBefore() *pb.RequestOp {
	if a.limit > 0 {
		return opAll(a.dir)
	}
	return opLast(a.rivals(a.shared()), 0)
}

// ifNobody holds if nobody is in the way of a request with NoWait, which is not written otherwise: it disturbs nobody. An
// exclusive one wants no key at all at first, and so does a permit; a reader no writer but those whose lease was downgraded, which is a second
// version of the key, and no permit. If that does not hold, the queue has been read at the revision seen, and the request would have
// been admitted as its last: then nobody must have come since. Those who have gone make no difference.
func (a *attempt) ifNobody(seen int64) *pb.Compare {
	c := ifCreated(a.dir, 0)
	switch {
	case seen > 0:
		c = ifCreated(a.dir, seen+1)
		c.Result = pb.Compare_LESS
	case a.shared() && a.limit == 0:
		c = &pb.Compare{
			Key: []byte(a.rivals(true)), Target: pb.Compare_VERSION, Result: pb.Compare_NOT_EQUAL,
			TargetUnion: &pb.Compare_Version{Version: 1},
		}
	}
	c.RangeEnd = endOf(string(c.Key))
	return c
}

// created takes the answer to a create. The revision is that of the transaction: all who held the lock before have released
// it by then.
func (a *attempt) created(got *pb.TxnResponse) *view {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revision = got.Header.Revision
	before := got.Responses[len(got.Responses)-2].GetResponseRange()
	if a.limit == 0 {
		return a.viewOf(got.Header.Revision, before, nil)
	}
	q := requestsOf(a.dir, before.GetKvs())
	v := a.fullView(a.revision, append(q, request{a.name, a.revision, true, a.limit}), len(q))
	v.created = true
	return v
}

// refused takes the answer to a create that was not carried out. It reports whether that is the end: the key exists, or
// somebody is in the way. It sets seen if nobody was, at that revision, for the next try.
func (a *attempt) refused(got *pb.TxnResponse, prev *prev, seen *int64) (done bool, err error) {
	mine, guard := got.Responses[0].GetResponseRange(), got.Responses[1].GetResponseRange()
	if len(mine.Kvs) > 0 && string(mine.Kvs[0].Value) != a.value {
		a.unsure() // so neither of us deletes what is the other's, and we do not use the name again
		return true, errTaken
	}
	if len(mine.Kvs) > 0 {
		a.mu.Lock()
		a.revision = mine.Kvs[0].CreateRevision
		a.mu.Unlock()
		prev.settle(nil) // by the try before
		return true, nil
	}
	before := a.s.guardRevision()
	if len(guard.Kvs) > 0 {
		a.s.guarded(guard.Kvs[0].ModRevision)
	}
	if !a.noWait || a.s.guardRevision() != before {
		return false, nil
	}
	queue := queueOf(got.Responses[2].GetResponseRange().Kvs)
	all := a.shared() || a.readsAll
	switch {
	case all && a.isNext(requestsOf(a.dir, queue)):
		*seen = got.Header.Revision
		return false, nil
	case !all && len(queue) == 0: // the oldest key is somebody else's, or has just gone
		a.readsAll = true
		return false, nil
	}
	return true, heldBy(queue)
}

// errTaken says that another process uses the name: a copy of ours, which knows the same free ones.
var errTaken = fmt.Errorf("etcdlock: the key of the request is another's: %w", distributed.ErrUnavailable)

// heldBy is the refusal of a request that does not wait. It names the first in line.
func heldBy(first []*mvccpb.KeyValue) error {
	if len(first) == 0 {
		return distributed.ErrHeld
	}
	return distributed.Held(instanceIn(first[0].Value))
}

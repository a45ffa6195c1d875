package etcdlock

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/wllock/wllock/distributed"
)

// create puts the attempt's key, deletes that of prev, and reads who is last in line, in one transaction. A nil view without an
// error: the key exists by an earlier try, and one has to look.
//
// A try that was not answered has been carried out or not, or will be. It is repeated under the same name: if the key exists, the
// repeat finds it; if an earlier try comes after the repeat, it finds the key and does nothing. One that comes after the key
// was deleted again finds the guard changed: see dirty (rule E1).
func (a *attempt) create(ctx context.Context, prev *prev) (*view, error) {
	if a.noWait {
		if err := prev.release(ctx); err != nil {
			return nil, err
		}
	}
	for {
		if err := prev.settled(ctx); err != nil {
			return nil, err
		}
		got, err := a.s.txn(ctx, "enter", a.createRequest(prev.name()))
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
			prev.replaced(got.Responses[0], a.isDirty())
			return a.created(got), nil
		}
		if done, err := a.refused(got, prev); done {
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

func (a *attempt) createRequest(prev string) *pb.TxnRequest {
	guard := a.s.guardKey()
	req := &pb.TxnRequest{
		Compare: []*pb.Compare{ifCreated(a.name, 0), ifModified(guard, a.s.guardRevision())},
		Success: []*pb.RequestOp{opLast(a.rivals(a.shared()), 0), opPut(a.name, a.instance, a.s.lease())},
		Failure: []*pb.RequestOp{opGet(a.name), opGet(guard)},
	}
	if prev != "" {
		req.Success = append([]*pb.RequestOp{opDelete(prev)}, req.Success...)
	}
	if a.noWait {
		req.Compare = append(req.Compare, a.ifNobody())
		req.Failure = append(req.Failure, opFirst(a.dir))
	}
	return req
}

// ifNobody holds if nobody is in the way of a request with NoWait, which is not written otherwise: it disturbs nobody. An
// exclusive one wants no key at all, a shared one no writer but those whose lease was downgraded, which is a second version
// of the key.
func (a *attempt) ifNobody() *pb.Compare {
	c := ifCreated(a.dir, 0)
	if a.shared() {
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
	return a.viewOf(got.Header.Revision, got.Responses[len(got.Responses)-2].GetResponseRange(), nil)
}

// refused takes the answer to a create that was not carried out. It reports whether that is the end: the key exists, or
// somebody is in the way.
func (a *attempt) refused(got *pb.TxnResponse, prev *prev) (done bool, err error) {
	mine, guard := got.Responses[0].GetResponseRange(), got.Responses[1].GetResponseRange()
	if len(mine.Kvs) > 0 {
		a.mu.Lock()
		a.revision = mine.Kvs[0].CreateRevision
		a.mu.Unlock()
		prev.settle(nil, true) // by the try before
		return true, nil
	}
	before := a.s.guardRevision()
	if len(guard.Kvs) > 0 {
		a.s.guarded(guard.Kvs[0].ModRevision)
	}
	if a.noWait && a.s.guardRevision() == before {
		return true, heldBy(got.Responses[2].GetResponseRange().Kvs)
	}
	return false, nil
}

// heldBy is the refusal of a request that does not wait. It names the first in line.
func heldBy(first []*mvccpb.KeyValue) error {
	if len(first) == 0 {
		return distributed.ErrHeld
	}
	return distributed.Held(string(first[0].Value))
}

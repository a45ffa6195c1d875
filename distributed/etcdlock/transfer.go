package etcdlock

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

var _ driver.Transferer[claim] = half{}

// errDowngraded says that a Downgrade was carried out that was not answered.
var errDowngraded = keyless.Errorf("etcdlock: transfer: the lease was downgraded: %w", distributed.ErrUnavailable)

// Detached implements driver.Transferer. Any session serves for what is asked about the lease, and none keeps its key.
func (d half) Detached(ctx context.Context, a *attempt, _ string) error {
	s, err := d.any(ctx)
	if err == nil {
		a.Wire.init(a, s)
		a.Wire.detached, a.Wire.freed, a.Lasts = true, true, a.TTL
	}
	return err
}

// Transfer implements driver.Transferer: the holder's key gets another value and another etcd lease, and stays where it is (rule E9).
func (d half) Transfer(ctx context.Context, from, to *attempt) (driver.Standing, error) {
	f, c, window := &from.Wire, &to.Wire, to.Window
	if c.detached {
		window = from.Window
	}
	ctx, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	c.gone() // the name that it was given: it takes that of the holder's key
	f.moved, c.moved = true, true
	s, err := c.stands(ctx, func(ctx context.Context) (*view, error) { return c.takeOver(ctx, f) })
	switch {
	case err == nil:
		c.s.forget(f.own)
	case errors.Is(err, distributed.ErrLeaseLost):
		c.s.forget(c.own)
	}
	return s, err
}

// takeOver tries until the queue shows that the key is ours, or neither's. A try that is carried out late does nothing: the key was written
// since, or the guard, or the etcd lease that it names was revoked.
func (c *claim) takeOver(ctx context.Context, from *claim) (*view, error) {
	for {
		q, revision, err := c.readQueue(ctx)
		if i := slices.IndexFunc(q, c.owns); i >= 0 {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.revision, c.dirty = q[i].CreateRevision, false
			return c.fullView(revision, c.b.requestsFor(c.a.Key, q), i), nil
		}
		if err == nil {
			err = c.take(ctx, from, q, revision)
		}
		switch {
		case isUnknown(err) && ctx.Err() == nil:
			parts.Pause(ctx, firstPause)
		case err != nil:
			return nil, err
		}
	}
}

// readQueue reads the requests for the lock, with their values, and the guard of the session.
func (c *claim) readQueue(ctx context.Context) (q []*mvccpb.KeyValue, revision int64, err error) {
	got, err := c.s.txn(ctx, "transfer", &pb.TxnRequest{Success: []*pb.RequestOp{c.b.opQueue(c.a.Key), opGet(c.s.guardKey())}})
	if err != nil {
		return nil, 0, err
	}
	if guard := got.Responses[1].GetResponseRange().Kvs; len(guard) > 0 {
		c.s.guarded(guard[0].ModRevision)
	}
	return queueOf(got.Responses[0].GetResponseRange().Kvs), got.Header.Revision, nil
}

// owns reports that a key of the queue is the attempt's. Each process that has the id of a detached lease knows its key.
func (c *claim) owns(kv *mvccpb.KeyValue) bool {
	return string(kv.Value) == c.value || c.detached && instanceIn(kv.Value) == c.a.Instance
}

// take writes the key of the other's lease, provided that nothing has happened to it since the queue was read. The next look tells whether
// that was carried out.
func (c *claim) take(ctx context.Context, from *claim, q []*mvccpb.KeyValue, seen int64) (err error) {
	i, lease := slices.IndexFunc(q, from.owns), c.s.lease()
	switch {
	case i < 0:
		return distributed.ErrLeaseLost
	case isDowngraded(q[i]):
		return errDowngraded
	case from.detached:
		from.own = q[i].Lease
	case c.own == 0:
		if c.own, err = c.s.grant(ctx, "detach", int64(math.Ceil(c.a.Lasts.Seconds()))); err != nil {
			return err
		}
	}
	if c.detached {
		lease = c.own
	}
	c.name, c.value = string(q[i].Key), movedValue(c.value, q[i].Version+1)
	req := &pb.TxnRequest{
		Compare: []*pb.Compare{ifModified(c.name, q[i].ModRevision), ifModified(c.s.guardKey(), c.s.guard.Load())},
		Success: []*pb.RequestOp{opPut(c.name, c.value, lease), opPut(besideOf(c.dir, c.value), c.value, lease)},
	}
	if wasMoved(q[i]) {
		req.Success = append(req.Success, opDelete(besideOf(c.dir, string(q[i].Value))))
	}
	c.turnAway(req, q, seen)
	if _, dirty := from.key(); dirty { // no Drop comes after what a late create brings
		req.Success = append(req.Success, opPut(from.s.guardKey(), "", from.s.lease()))
	}
	_, err = call(ctx, c.s, "transfer", func(ctx context.Context, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
		got, err := pb.NewKVClient(c.s.connection()).Txn(ctx, req, opts...)
		if c.detached && codeOf(err) == codes.NotFound { // it is not the session that has expired
			c.own, err = 0, status.New(codes.Aborted, "another etcd lease has expired").Err()
		}
		return got, err
	})
	if isUnknown(err) {
		c.unsure()
	}
	return err
}

// turnAway deletes the keys of readers and permits of a version without detached leases: to them the key would be that of a lease that was
// downgraded. They queue again, behind the key beside it.
func (c *claim) turnAway(req *pb.TxnRequest, q []*mvccpb.KeyValue, seen int64) {
	for _, letter := range []string{sharedLetter, permitLetter} {
		none := ifCreated(c.dir+letter+olderLetter, seen+1)
		none.Result, none.RangeEnd = pb.Compare_LESS, endOf(c.dir+letter)
		req.Compare = append(req.Compare, none)
		for _, kv := range q {
			if bytes.Compare(kv.Key, none.Key) >= 0 && bytes.Compare(kv.Key, none.RangeEnd) < 0 {
				req.Success = append(req.Success, opDelete(string(kv.Key)))
			}
		}
	}
}

// revoke ends an etcd lease, and with it its keys. One that has ended by itself is as good.
func (s *session) revoke(ctx context.Context, id int64) error {
	_, err := call(ctx, s, "revoke", func(ctx context.Context, opts ...grpc.CallOption) (*pb.LeaseRevokeResponse, error) {
		got, err := pb.NewLeaseClient(s.connection()).LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id}, opts...)
		if codeOf(err) == codes.NotFound {
			err = nil
		}
		return got, err
	})
	return err
}

// forget ends an etcd lease that has no keys any more, unless it is 0.
func (s *session) forget(id int64) {
	if id != 0 {
		s.b.engine.Go(func() { _ = s.revoke(s.Ctx, id) })
	}
}

// left is how long a detached lease lasts. 0: that is not known.
func (s *session) left(ctx context.Context, id int64) time.Duration {
	got, err := call(ctx, s, "inspect", func(ctx context.Context, opts ...grpc.CallOption) (*pb.LeaseTimeToLiveResponse, error) {
		return pb.NewLeaseClient(s.connection()).LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id}, opts...)
	})
	if err != nil {
		return 0
	}
	return max(time.Duration(got.TTL)*time.Second, 0)
}

// Detach implements distributed.Transferer.
func (b *Backend) Detach(ctx context.Context, l distributed.Lease, id string, lasts time.Duration) error {
	return b.engine.Detach(ctx, l, id, lasts)
}

// Adopt implements distributed.Transferer.
func (b *Backend) Adopt(ctx context.Context, req distributed.Request, id string) (distributed.Lease, error) {
	return b.engine.Adopt(ctx, req, id)
}

// Discard implements distributed.Transferer.
func (b *Backend) Discard(ctx context.Context, req distributed.Request, id string) error {
	return b.engine.Discard(ctx, req, id)
}

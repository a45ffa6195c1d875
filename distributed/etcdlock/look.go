package etcdlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

// errRobbed says that an attempt's key is gone though nobody here has deleted it.
var errRobbed = keyless.Errorf("etcdlock: the key of the request is gone: %w", distributed.ErrUnavailable)

// view is what a transaction has shown: the queue at one revision. Reads are linearizable: a member that lags catches up with the
// leader first.
type view struct {
	revision  int64
	first     bool     // it is the attempt's turn
	before    []string // otherwise the keys that it waits for: see driver.KeepsOut; the lock's prefix: all of them
	waiter    string   // the first request of another instance that waits behind it; "": none
	created   bool     // it is that of the transaction which has created the key
	undecided bool     // there are permits, or keys that are no requests, and more of the queue has to be seen
	err       error    // a request of another version is in the way
}

// viewOf takes the youngest of the rivals before the attempt, and the oldest behind it. A shared request's turn has come when the
// last writer before it has downgraded its lease: that one is the holder, because nobody was before it when it was exclusive
// (rule E2). A reader that finds a permit has to see all of the queue.
func (c *claim) viewOf(revision int64, before, behind *pb.RangeResponse) *view {
	waiter, unsure := c.waits(c.a.Shares(), behind)
	v := &view{revision: revision, waiter: waiter, err: sameFormat(c.dir, before.GetKvs())}
	switch {
	case v.err != nil:
	case len(before.GetKvs()) > 0 && tagIn(string(before.Kvs[0].Key)) == "": // somebody else's key, below which may be requests
		v.undecided = true
	case len(before.GetKvs()) == 0 || c.a.Shares() && isDowngraded(before.Kvs[0]):
		v.first, v.undecided = true, unsure
	case c.a.Shares() && c.isPermit(before.Kvs[0]):
		v.undecided = true
	default:
		v.before = []string{string(before.Kvs[0].Key)}
	}
	return v
}

// isPermit reports that a key is a request for a permit.
func (c *claim) isPermit(kv *mvccpb.KeyValue) bool {
	return limitIn(strings.TrimPrefix(string(kv.Key), c.dir)) > 0
}

// isDowngraded reports that the key was written once more, which only Downgrade does. Its value tells how often it was moved.
func isDowngraded(kv *mvccpb.KeyValue) bool { return kv.Version > exclusiveVersion(kv.Value) }

// wasMoved reports that the key was that of another lease before, which was detached.
func wasMoved(kv *mvccpb.KeyValue) bool { return exclusiveVersion(kv.Value) > 1 }

// waits returns the first of another instance among the rivals behind, which wait; "": there is none. Of permits behind one that shares
// the lock it is not sure, nor of keys that are no requests, which may hide some.
func (c *claim) waits(shared bool, behind *pb.RangeResponse) (waiter string, unsure bool) {
	for _, kv := range behind.GetKvs() {
		switch tagIn(string(kv.Key)) {
		case c.tag:
			continue
		case "":
			unsure = true
			continue
		}
		if !shared || !c.isPermit(kv) {
			return string(kv.Key), false
		}
		unsure = true
	}
	return "", unsure
}

// isOther reports that a key is a request of another instance.
func (c *claim) isOther(kv *mvccpb.KeyValue) bool {
	tag := tagIn(string(kv.Key))
	return tag != "" && tag != c.tag
}

// look reads who is before the attempt and who behind.
func (c *claim) look(ctx context.Context) (*view, error) {
	if c.a.Limit > 0 {
		return c.lookAtAll(ctx)
	}
	rivals := c.rivals(c.a.Shares())
	got, err := c.s.txn(ctx, "look", &pb.TxnRequest{
		Success: []*pb.RequestOp{opGet(c.name), opLast(rivals, c.revision), opAfter(rivals, c.revision)},
	})
	if err != nil {
		return nil, err
	}
	if len(got.Responses[0].GetResponseRange().Kvs) == 0 {
		return nil, errRobbed
	}
	v := c.viewOf(got.Header.Revision, got.Responses[1].GetResponseRange(), got.Responses[2].GetResponseRange())
	if v.undecided {
		return c.lookAtAll(ctx)
	}
	return v, nil
}

// lookAtAll reads the queue, of which a permit is counted.
func (c *claim) lookAtAll(ctx context.Context) (*view, error) {
	got, err := c.s.txn(ctx, "look", &pb.TxnRequest{Success: []*pb.RequestOp{opAll(c.dir)}})
	if err != nil {
		return nil, err
	}
	kvs := got.Responses[0].GetResponseRange().Kvs
	if err = sameFormat(c.dir, kvs); err != nil {
		return nil, err
	}
	q := requestsOf(c.dir, kvs)
	mine, _ := c.key()
	i := slices.IndexFunc(q, func(r request) bool { return r.name == c.name && r.revision == mine })
	if i < 0 {
		return nil, errRobbed
	}
	return c.fullView(got.Header.Revision, q, i), nil
}

// lookUntilAnswered repeats a look that was not answered: it changes nothing.
func (c *claim) lookUntilAnswered(ctx context.Context) (*view, error) {
	for {
		v, err := c.look(ctx)
		if !isUnknown(err) || ctx.Err() != nil {
			return v, err
		}
		parts.Pause(ctx, firstPause)
	}
}

// granted is what makes a lease of a view. Permits that are held at a time may have seen the same revision, so one that has waited makes
// one of its own: a change, provided that its key is there. The others have that of their create (rule E6).
func (c *claim) granted(ctx context.Context, sent time.Time, v *view) (driver.Standing, error) {
	if err := c.s.vouch(ctx); err != nil {
		return driver.Standing{}, err
	}
	revision := v.revision
	if c.a.Limit > 0 && !v.created {
		var err error
		if revision, err = c.mark(ctx); err != nil {
			return driver.Standing{}, err
		}
	}
	block, err := fences.Block(revision, c.a.Limit > 0)
	s := driver.Standing{Kind: driver.Granted, Sent: sent, Fences: block, Contended: v.waiter != "", Next: watchPause}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unwatch()
	switch c.seen = v.revision; {
	case c.worthWatching(c.a.Mode == distributed.Shared, v.waiter):
		c.waiter = v.waiter
	case v.waiter != "":
		c.seen, s.Next = 0, c.checkInterval()
	}
	return s, err
}

// mark makes a revision that only this request has.
func (c *claim) mark(ctx context.Context) (int64, error) {
	for {
		revision, err := c.ifOurs(ctx, "mark", opPut(c.s.writeKey(), "", c.s.lease()))
		switch {
		case errors.Is(err, distributed.ErrLeaseLost):
			return 0, errRobbed
		case !isUnknown(err) || ctx.Err() != nil:
			return revision, err
		}
		parts.Pause(ctx, firstPause) // a change more does no harm
	}
}

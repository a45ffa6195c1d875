package etcdlock

import (
	"context"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/parts"
)

var _ distributed.Inspector = (*Backend)(nil)

// Inspect implements distributed.Inspector. It is one transaction that reads. It cannot say when a request was made, because etcd keeps no times
// of keys, or how long a lease lasts, because that depends on its session.
func (b *Backend) Inspect(ctx context.Context, key string) (distributed.Inspection, error) {
	found := distributed.Inspection{Key: key}
	s, ctx, cancel, err := b.session(ctx)
	defer cancel()
	if err != nil {
		return found, err
	}
	got, err := s.txn(ctx, "inspect", &pb.TxnRequest{Success: []*pb.RequestOp{b.opQueue(key), opValue(b.brokenKey(key))}})
	if err != nil {
		return found, b.engine.OrClosed(err)
	}
	kvs := got.Responses[0].GetResponseRange().Kvs
	if err = sameFormat(b.dirOf(key), kvs); err != nil {
		return found, err
	}
	q := queueOf(kvs)
	b.describe(&found, q, got.Header.Revision, distributed.MaxNamed, distributed.MaxNamed)
	if found.Held() && found.Holders[0].Detached() {
		found.Holders[0].Left = s.left(ctx, q[0].Lease)
	}
	if kvs := got.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
		found.Broken = brokenIn(kvs[0])
	}
	return found, nil
}

// opQueue reads all requests for a lock: each instance has one, or two.
func (b *Backend) opQueue(key string) *pb.RequestOp {
	dir := b.dirOf(key)
	return opRead(&pb.RangeRequest{Key: []byte(dir), RangeEnd: endOf(dir)})
}

// describe fills in what the queue for a key says, and names so many.
func (b *Backend) describe(to *distributed.Inspection, q []*mvccpb.KeyValue, revision int64, holders, waiters int) {
	if len(q) == 0 {
		return
	}
	all := b.requestsFor(to.Key, q)
	inside := admitted(all)
	to.State = strconv.FormatInt(max(ownedSince(q[0]), q[inside-1].CreateRevision), 10) // of the youngest holder
	to.Mode = all[0].mode()
	for _, kv := range q[:min(inside, holders)] {
		to.Holders = append(to.Holders, distributed.Holder{Instance: instanceIn(kv.Value)})
	}
	for i, kv := range q[inside:min(inside+waiters, len(q))] {
		to.Waiters = append(to.Waiters, distributed.Waiter{Instance: instanceIn(kv.Value), Mode: all[inside+i].mode()})
	}
	to.MoreHolders, to.MoreWaiters = max(inside-holders, 0), max(len(q)-inside-waiters, 0)
	to.Fence = fences.Last(revision)
}

// requestsFor reads the queue for a key.
func (b *Backend) requestsFor(key string, q []*mvccpb.KeyValue) []request {
	return requestsOf(b.dirOf(key), q)
}

func (r request) mode() distributed.Mode {
	if r.Shared {
		return distributed.Shared
	}
	return distributed.Exclusive
}

// listedAtOnce is how many requests, of all locks, a page of List reads at most.
const listedAtOnce = 1000

// List implements distributed.Inspector. A page is one read of the requests in the order of their keys. The cursor is the key at which the next
// page begins.
func (b *Backend) List(ctx context.Context, prefix, cursor string, limit int) ([]distributed.Inspection, string, error) {
	if err := parts.CheckPage("etcdlock", limit); err != nil {
		return nil, "", err
	}
	s, ctx, cancel, err := b.session(ctx)
	defer cancel()
	if err != nil {
		return nil, "", err
	}
	start := b.set.prefix + "/" + escaper.Replace(prefix)
	end := string(endOf(start))
	if cursor > start {
		start = cursor
	}
	if start >= end {
		return nil, "", nil
	}
	got, err := s.txn(ctx, "list", &pb.TxnRequest{Success: []*pb.RequestOp{opRead(&pb.RangeRequest{Key: []byte(start), RangeEnd: []byte(end), Limit: listedAtOnce})}})
	if err != nil {
		return nil, "", b.engine.OrClosed(err)
	}
	read := got.Responses[0].GetResponseRange()
	groups := b.byLock(read.Kvs)
	next := ""
	switch {
	case len(groups) > limit:
		groups, next = groups[:limit], b.dirOf(groups[limit].key)
	case read.More && len(groups) > 1: // the last of them may go on
		next = b.dirOf(groups[len(groups)-1].key)
		groups = groups[:len(groups)-1]
	case read.More: // one lock with more requests than a page reads, or none
		return b.listOne(ctx, s, read.Kvs)
	}
	var page []distributed.Inspection
	for _, g := range groups {
		page = append(page, b.brief(g.key, g.kvs, got.Header.Revision))
	}
	return page, next, nil
}

// requests are those of one lock.
type requests struct {
	key string
	kvs []*mvccpb.KeyValue
}

// byLock groups requests, in the order of names, by their locks. What is no request is left out.
func (b *Backend) byLock(kvs []*mvccpb.KeyValue) (groups []requests) {
	for _, kv := range kvs {
		key, err := Key(b.set.prefix, string(kv.Key))
		switch last := len(groups) - 1; {
		case err != nil || tagIn(string(kv.Key)) == "" || formatIn(strings.TrimPrefix(string(kv.Key), b.dirOf(key))) != 0:
		case last >= 0 && groups[last].key == key:
			groups[last].kvs = append(groups[last].kvs, kv)
		default:
			groups = append(groups, requests{key, []*mvccpb.KeyValue{kv}})
		}
	}
	return groups
}

// brief is what List tells of a lock.
func (b *Backend) brief(key string, kvs []*mvccpb.KeyValue, revision int64) distributed.Inspection {
	found := distributed.Inspection{Key: key}
	b.describe(&found, queueOf(kvs), revision, 1, 0)
	return found
}

// listOne is a page that begins with so many keys that they fill it: all of one lock, which is read as a whole, or none that are
// requests.
func (b *Backend) listOne(ctx context.Context, s *session, kvs []*mvccpb.KeyValue) ([]distributed.Inspection, string, error) {
	groups := b.byLock(kvs)
	if len(groups) == 0 {
		return nil, string(kvs[len(kvs)-1].Key) + "\x00", nil
	}
	key := groups[0].key
	got, err := s.txn(ctx, "list", &pb.TxnRequest{Success: []*pb.RequestOp{b.opQueue(key)}})
	if err != nil {
		return nil, "", b.engine.OrClosed(err)
	}
	var page []distributed.Inspection
	if q := got.Responses[0].GetResponseRange().Kvs; len(q) > 0 {
		page = append(page, b.brief(key, q, got.Header.Revision))
	}
	return page, string(endOf(b.dirOf(key))), nil
}

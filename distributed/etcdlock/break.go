package etcdlock

import (
	"context"
	"encoding/json"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

const (
	// breakTries are made if a reader leaves between a look and the deletion.
	breakTries = 10
	// brokenAtOnce is how many readers one transaction ends: a server takes 128 operations by default.
	brokenAtOnce = 100
)

// brokenKey is where the record of a Break is kept: when, by the clock of the process that broke it, since etcd keeps no times. Its fence is
// that of its revision. It is attached to an etcd lease of its own, so that it goes by itself.
func (b *Backend) brokenKey(key string) string {
	return b.set.prefix + "/" + brokenName + escaper.Replace(key)
}

// Break implements distributed.Inspector (rule E8). One transaction, which compares the create revisions, deletes the holders' keys and writes
// the record. It wakes the next in line as a release does, and the fences of that one are those of this change or later. If no other instance
// waits for a holder, it learns of the break by its watch, otherwise by its next look, within T/3.
func (b *Backend) Break(ctx context.Context, found distributed.Inspection, by, reason string) (distributed.Breaking, error) {
	record, youngest, err := parts.CheckBreak("etcdlock", found, by, reason)
	if err != nil {
		return record, err
	}
	s, ctx, cancel, err := b.session(ctx)
	defer cancel()
	if err != nil {
		return record, err
	}
	record.At = time.Now()
	revision, err := b.breakHolders(ctx, s, found.Key, youngest, record)
	if err != nil {
		return record, b.engine.OrClosed(err)
	}
	record.Fence = fences.Last(revision - 1)
	b.set.log.Warn("etcdlock: a lease was ended by force", "holder", record.Holder, "by", by, "fence", record.Fence)
	return record, nil
}

// breakHolders deletes the keys of all holders, provided that the oldest of them is no younger than the youngest of those that
// were found. It returns the revision of the last deletion.
func (b *Backend) breakHolders(ctx context.Context, s *session, key string, youngest int64, record distributed.Breaking) (int64, error) {
	var put *pb.RequestOp
	ended := int64(0)
	for tries := 0; tries < breakTries; {
		holders, err := b.holders(ctx, s, key)
		switch {
		case err != nil:
			return 0, err
		case len(holders) > 0 && ownedSince(holders[0]) <= youngest:
		case ended != 0:
			return ended, nil // the rest has left
		default:
			return 0, keyless.Errorf("etcdlock: break: %w", distributed.ErrNotHeld)
		}
		if put == nil {
			if put, err = b.opRecord(ctx, s, key, record); err != nil {
				return 0, err
			}
		}
		some := holders[:min(len(holders), brokenAtOnce)]
		got, err := s.txn(ctx, "break", deleteAll(b.dirOf(key), some, put))
		switch {
		case err != nil:
			return 0, err
		case !got.Succeeded: // one of them has just left
			tries++
			continue
		}
		ended, youngest = got.Header.Revision, max(youngest, holders[len(holders)-1].CreateRevision)
		if len(some) == len(holders) {
			return ended, nil
		}
	}
	return 0, keyless.Errorf("etcdlock: break: readers come and go: %w", distributed.ErrUnavailable)
}

// ownedSince is the revision at which a holder got its key: one that was moved is that of an earlier lease, too.
func ownedSince(kv *mvccpb.KeyValue) int64 {
	if wasMoved(kv) {
		return kv.ModRevision
	}
	return kv.CreateRevision
}

// holders reads who holds a lock.
func (b *Backend) holders(ctx context.Context, s *session, key string) ([]*mvccpb.KeyValue, error) {
	got, err := s.txn(ctx, "break", &pb.TxnRequest{Success: []*pb.RequestOp{b.opQueue(key)}})
	if err != nil {
		return nil, err
	}
	q := queueOf(got.Responses[0].GetResponseRange().Kvs)
	if len(q) == 0 {
		return nil, nil
	}
	return q[:admitted(b.requestsFor(key, q))], nil
}

// deleteAll deletes these and writes the record, or does neither.
func deleteAll(dir string, kvs []*mvccpb.KeyValue, put *pb.RequestOp) *pb.TxnRequest {
	req := &pb.TxnRequest{Success: []*pb.RequestOp{put}}
	for _, kv := range kvs {
		req.Compare = append(req.Compare, ifModified(string(kv.Key), kv.ModRevision))
		req.Success = append(req.Success, opDelete(string(kv.Key)))
		if wasMoved(kv) {
			req.Success = append(req.Success, opDelete(besideOf(dir, string(kv.Value))))
		}
	}
	return req
}

// opRecord grants the etcd lease of the record, and returns what writes it.
func (b *Backend) opRecord(ctx context.Context, s *session, key string, record distributed.Breaking) (*pb.RequestOp, error) {
	text, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	id, err := s.grant(ctx, "break", int64(distributed.BrokenMemory/time.Second))
	if err != nil {
		return nil, err
	}
	return opPut(b.brokenKey(key), string(text), id), nil
}

// brokenIn reads a record; nil: it is none.
func brokenIn(kv *mvccpb.KeyValue) *distributed.Breaking {
	var record distributed.Breaking
	if json.Unmarshal(kv.Value, &record) != nil {
		return nil
	}
	record.Fence = fences.Last(kv.ModRevision - 1)
	return &record
}

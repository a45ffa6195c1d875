package etcdlock

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// txn sends a transaction, waits for its answer as long as a server is given, and reports it to the observers. What of two
// transactions of a session comes first is open until one is answered: they may go to different servers.
func (s *session) txn(ctx context.Context, what string, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	return call(ctx, s, what, func(ctx context.Context, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
		return pb.NewKVClient(s.connection()).Txn(ctx, req, opts...)
	})
}

// call makes one exchange. It fails at once without a connection, and after a while without an answer: then the next try goes to
// another server, and ours may only be stopped. A member that says that it cannot serve has done nothing, so the next one is asked at once, or as soon as there is a connection to it.
func call[T any](ctx context.Context, s *session, what string, f func(context.Context, ...grpc.CallOption) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, unanswered(what, err)
	}
	limited, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), s.patience())
	defer cancel()
	var to peer.Peer // stays empty if no connection was found, so that nothing was sent
	sent := time.Now()
	got, err := f(limited, grpc.Peer(&to))
	for tries, begin := 1, sent; cannotServe(err) && (tries < otherMembers || time.Since(begin) < connectTime); tries++ {
		if tries >= otherMembers {
			time.Sleep(firstPause)
		}
		sent = time.Now()
		got, err = f(limited, grpc.Peer(&to))
	}
	if err == nil {
		s.b.observe(sent, nil)
		return got, nil
	}
	err = explain(ctx, what, err, to.Addr == nil)
	s.b.observe(sent, err)
	s.failed(err)
	return none, err
}

// otherMembers is how many members are asked at once. The client takes them in turn, so that is more than a cluster has.
const otherMembers = 8

// connectTime is how long others are given that have no connection yet, or have lost it.
const connectTime = time.Second

// firstPause is that before a request is repeated.
const firstPause = 5 * time.Millisecond

// The parts of transactions.

func opPut(key, value string, id int64) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{
		RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: id},
	}}
}

func opDelete(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)},
	}}
}

func opTxn(req *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: req}}
}

// opRead reads keys with their values, opRange without them.
func opRead(req *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: req}}
}

func opRange(req *pb.RangeRequest) *pb.RequestOp {
	req.KeysOnly = true
	return opRead(req)
}

func opGet(key string) *pb.RequestOp { return opRange(&pb.RangeRequest{Key: []byte(key)}) }

// opValue reads a key with its value.
func opValue(key string) *pb.RequestOp { return opRead(&pb.RangeRequest{Key: []byte(key)}) }

// opLast reads the newest of the keys with a prefix, with its value; before is a create revision that it must be below, unless 0.
func opLast(prefix string, before int64) *pb.RequestOp {
	return opRead(&pb.RangeRequest{
		Key: []byte(prefix), RangeEnd: endOf(prefix), Limit: 1, MaxCreateRevision: max(before-1, 0),
		SortTarget: pb.RangeRequest_CREATE, SortOrder: pb.RangeRequest_DESCEND,
	})
}

// opFirst reads the oldest of the keys with a prefix, with its value.
func opFirst(prefix string) *pb.RequestOp {
	return opRead(&pb.RangeRequest{
		Key: []byte(prefix), RangeEnd: endOf(prefix), Limit: 1, SortTarget: pb.RangeRequest_CREATE, SortOrder: pb.RangeRequest_ASCEND,
	})
}

// followersRead is how many keys behind ours are read: one is of another instance unless both are the same caller's, one of
// them on its way out.
const followersRead = 2

// opAfter reads the oldest keys with a prefix that are younger than a create revision.
func opAfter(prefix string, revision int64) *pb.RequestOp {
	return opRange(&pb.RangeRequest{
		Key: []byte(prefix), RangeEnd: endOf(prefix), Limit: followersRead, MinCreateRevision: revision + 1,
		SortTarget: pb.RangeRequest_CREATE, SortOrder: pb.RangeRequest_ASCEND,
	})
}

// ifCreated holds if the key was created at that revision; 0: if there is none.
func ifCreated(key string, revision int64) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: revision},
	}
}

// ifValue holds if the key is there, with this value.
func ifValue(key, value string) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), Target: pb.Compare_VALUE, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_Value{Value: []byte(value)},
	}
}

// ifModified holds if the key was written at that revision; 0: if there is none.
func ifModified(key string, revision int64) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_ModRevision{ModRevision: revision},
	}
}

func endOf(prefix string) []byte { return []byte(clientv3.GetPrefixRangeEnd(prefix)) }

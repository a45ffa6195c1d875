package etcdlock

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

// Beat implements driver.Living: it opens the session, once for each caller that waits for it, or sends a keepalive.
func (s *session) Beat(kicked bool) (next time.Duration) {
	if s.alive.Load() != nil {
		s.Tried(s.keepalives.beat())
		return s.beat()
	}
	if kicked {
		parts.Pause(s.Ctx, firstPause)
	}
	err := s.open()
	s.Tried(err)
	if err != nil {
		return driver.Never
	}
	return s.beat()
}

// open tries once to have the server grant an etcd lease. One whose grant was never answered has no keys, and expires.
func (s *session) open() error {
	conn, err := s.b.connect(s.Ctx)
	if err != nil {
		s.b.engine.Report(distributed.Exchange{Err: err})
		return err
	}
	s.conn.Store(conn)
	sent := time.Now()
	got, err := call(s.Ctx, s, "grant", func(ctx context.Context, opts ...grpc.CallOption) (*pb.LeaseGrantResponse, error) {
		return pb.NewLeaseClient(conn).LeaseGrant(ctx, grantOf(int64(s.TTL/time.Second)), opts...)
	})
	if err == nil && got.Error != "" {
		err = distributed.Unavailable("etcdlock: grant", errors.New(got.Error))
	}
	if err != nil {
		return err
	}
	s.b.watches.start()
	s.id.Store(got.ID)
	s.alive.Store(newAlive(sent, time.Duration(got.TTL)*time.Second))
	return nil
}

// grantOf asks for an etcd lease of so many seconds. Its id is random and not the server's next number: etcd lets every user revoke a lease
// that has no keys, attach keys to it, and take a number before us. A lease to which another user's key is attached takes no key of ours.
func grantOf(seconds int64) *pb.LeaseGrantRequest {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	// 0 would be the next number.
	return &pb.LeaseGrantRequest{TTL: seconds, ID: int64(binary.BigEndian.Uint64(id[:])>>1 | 1)}
}

// grant has the server grant an etcd lease beside the session's.
func (s *session) grant(ctx context.Context, what string, seconds int64) (id int64, err error) {
	got, err := call(ctx, s, what, func(ctx context.Context, opts ...grpc.CallOption) (*pb.LeaseGrantResponse, error) {
		return pb.NewLeaseClient(s.connection()).LeaseGrant(ctx, grantOf(seconds), opts...)
	})
	return got.GetID(), err
}

// keepalives are those of one session, one at a time over one stream. Only Beat and End use it.
type keepalives struct {
	s      *session
	stream pb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc // of the stream
}

// beat sends a keepalive and waits for its answer. One that was not answered is repeated once at once, over a new stream, which
// goes to another server if there is one.
func (k *keepalives) beat() error {
	err := k.try()
	if err != nil && k.s.Ctx.Err() == nil {
		err = k.try()
	}
	return err
}

func (k *keepalives) try() error {
	s := k.s
	sent := time.Now()
	ttl, term, err := k.exchange()
	for tries := 1; cannotServe(err) && tries < otherMembers; tries++ {
		k.drop()
		sent = time.Now()
		ttl, term, err = k.exchange()
	}
	if err != nil {
		err = explain(s.Ctx, "keepalive", err, false)
		s.reconnect()
	} else if ttl <= 0 {
		err = errOver
	}
	s.b.observe(sent, err)
	if err == nil {
		err = s.confirm(term)
	}
	if err != nil {
		k.drop()
		s.failed(err)
		return err
	}
	s.alive.Load().proven(sent)
	s.Lane.Retry() // what was postponed
	return nil
}

// errLeft says that a keepalive was answered in one term and the read after it in another.
var errLeft = keyless.Errorf("etcdlock: keepalive: the leader has changed: %w", distributed.ErrUnavailable)

// confirm reads something, which a quorum has to confirm, and returns nil if that is in the term of a keepalive that was answered
// before: see alive.
func (s *session) confirm(term uint64) error {
	got, err := s.txn(s.Ctx, "keepalive", &pb.TxnRequest{Success: []*pb.RequestOp{opGet(s.writeKey())}})
	if err == nil && got.Header.RaftTerm != term {
		err = errLeft
	}
	return err
}

// exchange returns the TTL that etcd answers with, and the term; 0: the etcd lease has expired.
func (k *keepalives) exchange() (ttl int64, term uint64, err error) {
	s := k.s
	if k.stream == nil {
		var ctx context.Context
		ctx, k.cancel = context.WithCancel(s.Ctx)
		timer := time.AfterFunc(s.patience(), k.cancel)
		defer timer.Stop()
		if k.stream, err = pb.NewLeaseClient(s.connection()).LeaseKeepAlive(ctx); err != nil {
			return 0, 0, err
		}
	}
	timer := time.AfterFunc(s.patience(), k.cancel)
	defer timer.Stop()
	if err = k.stream.Send(&pb.LeaseKeepAliveRequest{ID: s.lease()}); err != nil {
		return 0, 0, err
	}
	got, err := k.stream.Recv()
	if err != nil {
		return 0, 0, err
	}
	return got.TTL, got.Header.GetRaftTerm(), nil
}

// drop gives up the stream.
func (k *keepalives) drop() {
	if k.cancel != nil {
		k.cancel()
	}
	k.stream, k.cancel = nil, nil
}

// End implements driver.Living: at the server too, then its keys are gone at once. Keys of leases that are still held must stay until
// these have expired: then it is not kept alive any more, and expires.
func (s *session) End(held bool) {
	s.keepalives.drop()
	if held || s.Expired() || s.lease() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	_ = s.revoke(ctx, s.lease())
}

// closeGrace bounds how long the end of a session is waited for.
const closeGrace = time.Second

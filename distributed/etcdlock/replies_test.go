package etcdlock

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/parts"
)

// limbo is an etcd that does not answer some transactions, and may carry them out later.
type limbo struct {
	mu    sync.Mutex
	holds func(*pb.TxnRequest) bool // guarded by mu; nil: none
	held  []*pb.TxnRequest          // guarded by mu
}

// inLimbo returns a backend on the shared server, through a client of the limbo.
func inLimbo(t *testing.T, prefix string) (*Backend, *limbo) {
	t.Helper()
	x := new(limbo)
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{etcdtest.Shared(t).Addr}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(x.intercept)},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	b, err := New(c, WithPrefix(prefix))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b, x
}

func (x *limbo) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	if txn, is := req.(*pb.TxnRequest); is && x.keeps(txn) {
		for _, o := range opts {
			if to, is := o.(grpc.PeerCallOption); is {
				to.PeerAddr.Addr = new(net.TCPAddr) // it was sent
			}
		}
		return status.Error(codes.Unavailable, "held up")
	}
	return next(ctx, method, req, reply, cc, opts...)
}

func (x *limbo) keeps(txn *pb.TxnRequest) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	is := x.holds != nil && x.holds(txn)
	if is {
		x.held = append(x.held, txn)
	}
	return is
}

// hold leaves unanswered what is named; nil: nothing any more.
func (x *limbo) hold(holds func(*pb.TxnRequest) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.holds = holds
}

// first returns the first transaction that was held up.
func (x *limbo) first() *pb.TxnRequest {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.held[0]
}

// puts tells the transactions that write a key which contains one of these.
func puts(parts ...string) func(*pb.TxnRequest) bool {
	return func(txn *pb.TxnRequest) bool {
		return slices.ContainsFunc(txn.Success, func(op *pb.RequestOp) bool {
			return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(string(op.GetRequestPut().GetKey()), part) })
		})
	}
}

// An Enter with prev was given up unanswered, and is carried out when prev has been deleted, and its name is the key of a newer holder, but
// before the guard was written: the newer holder's key stays.
func TestALateDeletionOfPrevMeetsNoOtherRequest(t *testing.T) {
	t.Parallel()
	prefix, addr := newPrefix(), etcdtest.Shared(t).Addr
	b, etcd := inLimbo(t, prefix)
	ask, other, c := asker(t, b, "k"), asker(t, open(t, addr, prefix), "k"), plainClient(t, addr)
	prev := ask.Lease("a", lasting(long))
	etcd.hold(puts("x/"+parts.Tag("a"), guardName))
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := b.Enter(short, distributed.Request{Key: "k", Instance: "a", TTL: long, Prev: prev})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Eventually(t, func() bool { return count(t, c, b.dirOf("k")) == 0 }, patience, time.Millisecond, "prev is not deleted")
	require.Eventually(t, func() bool { // the Backend has heard of it
		b.names.mu.Lock()
		defer b.names.mu.Unlock()
		return b.names.n == 1
	}, patience, time.Millisecond, "prev's name is not free")
	etcd.hold(puts(guardName))
	newer := ask.Lease("a", lasting(long))
	require.Equal(t, claimOf(prev).name, claimOf(newer).name)
	got, err := pb.NewKVClient(c.ActiveConnection()).Txn(t.Context(), etcd.first())
	require.NoError(t, err)
	require.True(t, got.Succeeded, "the guard was written")
	etcd.hold(nil)
	ready(t, b)
	b.sessions.All()[0].Kick()
	require.Eventually(t, func() bool { return count(t, c, prefix+"/"+guardName) == 1 }, patience, time.Millisecond, "no guard")
	_, _, err = other.Try("b", lasting(long), func(r *distributed.Request) { r.NoWait = true })
	require.EqualError(t, err, distributed.Held("a").Error())
	release(t, newer)
	release(t, other.Lease("b", lasting(long)))
}

// While a create is not answered a copy of the process takes its name: the request takes another, and nothing comes of the first create.
func TestALostCreateWhoseNameIsTaken(t *testing.T) {
	t.Parallel()
	b, etcd := inLimbo(t, newPrefix())
	ask, c := asker(t, b, "k"), plainClient(t, etcdtest.Shared(t).Addr)
	before := ask.Lease("a", lasting(long))
	name := claimOf(before).name
	release(t, before)
	create, held := puts("x/"+parts.Tag("a")), make(chan struct{})
	etcd.hold(func(txn *pb.TxnRequest) bool {
		if !create(txn) || len(etcd.held) > 0 {
			return false
		}
		_, err := c.Put(t.Context(), name, valueOf("copy"))
		assert.NoError(t, err)
		close(held)
		return true
	})
	p := ask.Place("a", lasting(long))
	<-held
	require.NotEqual(t, name, claimOf(p).name)
	_, err := c.Delete(t.Context(), name)
	require.NoError(t, err)
	got, err := pb.NewKVClient(c.ActiveConnection()).Txn(t.Context(), etcd.first())
	require.NoError(t, err)
	require.False(t, got.Succeeded)
	release(t, granted(t, p))
}

// A lease that was lost is released when its name is another request's: the name is not free again.
func TestANameIsFreeOnce(t *testing.T) {
	t.Parallel()
	b := onShared(t)
	ask := asker(t, b, "k")
	first := ask.Lease("a", lasting(long))
	expire(t, plainClient(t, etcdtest.Shared(t).Addr), b, "k")
	lost(t, first)
	<-claimOf(first).s.Lane.Rest()
	second := ask.Lease("a", lasting(long))
	require.Equal(t, claimOf(first).name, claimOf(second).name)
	require.ErrorIs(t, first.Release(t.Context()), distributed.ErrLeaseLost)
	require.Zero(t, b.names.n)
	release(t, second)
}

// Creates that are under way when another's guard is written find it changed, and are repeated.
func TestAGuardThatChangesUnderway(t *testing.T) {
	t.Parallel()
	b := onShared(t)
	ask := asker(t, b, "k")
	release(t, ask.Lease("warm", lasting(long)))
	s := b.sessions.All()[0]
	_, err := s.txn(t.Context(), "guard", &pb.TxnRequest{Success: []*pb.RequestOp{opPut(s.guardKey(), "", s.lease())}})
	require.NoError(t, err)
	l := ask.Lease("a", lasting(long), func(r *distributed.Request) { r.NoWait = true })
	release(t, ask.Lease("a", lasting(long), func(r *distributed.Request) { r.Prev = l }))
}

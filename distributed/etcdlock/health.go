package etcdlock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/parts"
)

// Echo implements distributed.Observable. It sends an empty read that a quorum has to confirm.
func (b *Backend) Echo(ctx context.Context) error {
	s, ctx, cancel, err := b.session(ctx)
	defer cancel()
	if err == nil {
		_, err = s.txn(ctx, "echo", &pb.TxnRequest{Success: []*pb.RequestOp{opGet(s.writeKey())}})
	}
	if errors.Is(err, distributed.ErrRefused) || errors.Is(err, driver.ErrOver) {
		return nil // it answers
	}
	return b.engine.OrClosed(err)
}

// pingBudget bounds a Ping whose context has no end.
const pingBudget = 5 * time.Second

// Ping implements distributed.Backend. It writes a key of its own. So it succeeds only if the cluster has its quorum and space, and the user has
// the rights. The error names what is missing.
func (b *Backend) Ping(ctx context.Context) error {
	return b.try(ctx, func(ctx context.Context, s *session) error { return s.write(ctx, "ping") })
}

// Probe implements distributed.Prober. In addition to Ping, it checks that the user may write the keys of this lock. It writes no lock: etcd
// checks the rights of both branches of a transaction, and Probe's transaction takes the other one.
func (b *Backend) Probe(ctx context.Context, p distributed.Probe) error {
	if err := parts.CheckProbe("etcdlock", p); err != nil {
		return err
	}
	dir := b.dirOf(p.Key)
	return b.try(ctx, func(ctx context.Context, s *session) error {
		_, err := s.txn(ctx, "probe", &pb.TxnRequest{
			Compare: []*pb.Compare{ifCreated(s.writeKey(), -1)}, // never
			Success: []*pb.RequestOp{opPut(dir, "", 0), opRange(&pb.RangeRequest{Key: []byte(dir), RangeEnd: endOf(dir)})},
			Failure: []*pb.RequestOp{opPut(s.writeKey(), "", s.lease())},
		})
		return err
	})
}

// try does something in a session, in another one if that has ended while nobody asked.
func (b *Backend) try(ctx context.Context, f func(context.Context, *session) error) error {
	s, ctx, cancel, err := b.session(ctx)
	defer cancel()
	if err == nil {
		err = f(ctx, s)
	}
	if errors.Is(err, driver.ErrOver) {
		if s, err = b.any(ctx); err == nil {
			err = f(ctx, s)
		}
	}
	return b.engine.OrClosed(err)
}

// session returns a session for a question, and a context that ends within the budget.
func (b *Backend) session(ctx context.Context) (*session, context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeout(ctx, pingBudget)
	if b.engine.Closed() {
		return nil, ctx, cancel, distributed.ErrClosed
	}
	s, err := b.any(ctx)
	return s, ctx, cancel, b.engine.OrClosed(err)
}

// ttlMemory is how long a TTL in use is remembered at least.
const ttlMemory = 5 * time.Minute

// LongestTTL implements distributed.TTLRegistry. A note is a key with an etcd lease of its own, so it expires.
func (b *Backend) LongestTTL(ctx context.Context, system string, own time.Duration) (time.Duration, error) {
	s, ctx, cancel, err := b.session(ctx)
	defer cancel()
	if err != nil {
		return 0, err
	}
	memory := int64(max(ttlMemory, 2*own)/time.Second) + 1
	id, err := s.grant(ctx, "note TTL", memory)
	if err != nil {
		return 0, b.engine.OrClosed(err)
	}
	dir := b.set.prefix + "/" + ttlName + escaper.Replace(system) + "/"
	got, err := s.txn(ctx, "note TTL", &pb.TxnRequest{Success: []*pb.RequestOp{
		opPut(dir+strconv.FormatInt(int64(own), 10), "", id),
		opRange(&pb.RangeRequest{Key: []byte(dir), RangeEnd: endOf(dir)}),
	}})
	if err != nil {
		return 0, b.engine.OrClosed(err)
	}
	longest := own
	for _, kv := range got.Responses[1].GetResponseRange().Kvs {
		ns, _ := strconv.ParseInt(strings.TrimPrefix(string(kv.Key), dir), 10, 64)
		longest = max(longest, time.Duration(ns))
	}
	return longest, nil
}

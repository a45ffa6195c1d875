package etcdlock

import (
	"context"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/wllock/wllock/distributed"
)

// errRobbed says that an attempt's key is gone though nobody here has deleted it.
var errRobbed = fmt.Errorf("etcdlock: the key of the request is gone: %w", distributed.ErrUnavailable)

// view is what a transaction has shown: the queue at one revision. Reads are linearizable: a member that lags catches up with the
// leader first.
type view struct {
	revision  int64
	first     bool   // it is the attempt's turn
	before    string // otherwise the key that it waits for
	contended bool
}

// viewOf takes the youngest of the rivals before the attempt, and the oldest behind it. A shared request's turn has come when the
// last writer before it has downgraded its lease: that one is the holder, because nobody was before it when it was exclusive
// (rule E2).
func (a *attempt) viewOf(revision int64, before, behind *pb.RangeResponse) *view {
	v := &view{revision: revision, contended: a.waits(behind)}
	if len(before.GetKvs()) == 0 || a.shared() && isDowngraded(before.Kvs[0]) {
		v.first = true
	} else {
		v.before = string(before.Kvs[0].Key)
	}
	return v
}

// isDowngraded reports that the key was written a second time, which only Downgrade does.
func isDowngraded(kv *mvccpb.KeyValue) bool { return kv.Version > 1 }

// waits reports whether another instance is among those behind.
func (a *attempt) waits(behind *pb.RangeResponse) bool {
	return slices.ContainsFunc(behind.GetKvs(), func(kv *mvccpb.KeyValue) bool { return a.isOther(kv) })
}

// isOther reports that a key is a request of another instance.
func (a *attempt) isOther(kv *mvccpb.KeyValue) bool {
	tag := tagIn(string(kv.Key))
	return tag != "" && tag != a.tag
}

// look reads who is before the attempt and who behind.
func (a *attempt) look(ctx context.Context) (*view, error) {
	rivals := a.rivals(a.shared())
	got, err := a.s.txn(ctx, "look", &pb.TxnRequest{
		Success: []*pb.RequestOp{opGet(a.name), opLast(rivals, a.revision), opAfter(rivals, a.revision)},
	})
	if err != nil {
		return nil, err
	}
	if len(got.Responses[0].GetResponseRange().Kvs) == 0 {
		return nil, errRobbed
	}
	return a.viewOf(got.Header.Revision, got.Responses[1].GetResponseRange(), got.Responses[2].GetResponseRange()), nil
}

// lookUntilAnswered repeats a look that was not answered: it changes nothing.
func (a *attempt) lookUntilAnswered(ctx context.Context) (*view, error) {
	for {
		v, err := a.look(ctx)
		if !isUnknown(err) || ctx.Err() != nil {
			return v, err
		}
		pause(ctx, firstPause)
	}
}

// grant is what makes a lease.
type grant struct {
	since     time.Time // when the request or the look was sent
	fence     uint64    // the first of its block, greater than any before (rule E6)
	revision  int64
	contended bool
}

func (a *attempt) grant(ctx context.Context, since time.Time, v *view) (*grant, error) {
	if err := a.s.vouch(ctx); err != nil {
		return nil, err
	}
	fence, err := fenceOf(v.revision)
	return &grant{since, fence, v.revision, v.contended}, err
}

// follow watches the key that the attempt waits for: its deletion, and for a reader its downgrade. What happens between the
// look and the beginning of the watch makes it look once more. The caller holds mu.
func (a *attempt) follow(v *view) {
	if a.follows == v.before && a.watch != nil {
		return
	}
	a.unwatch()
	a.follows = v.before
	req := &pb.WatchCreateRequest{Key: []byte(v.before)}
	if !a.shared() {
		req.Filters = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}
	}
	a.watch = a.b.watches.add(a, v.revision, req)
}

// watchRivals has a holder learn who enters, and an exclusive one that its own key has been deleted. The caller holds mu.
func (a *attempt) watchRivals(revision int64) {
	a.unwatch()
	rivals := a.rivals(a.lease.fences.isShared())
	a.watch = a.b.watches.add(a, revision, &pb.WatchCreateRequest{Key: []byte(rivals), RangeEnd: endOf(rivals)})
}

// unwatch gives the watch up. The caller holds mu.
func (a *attempt) unwatch() {
	if a.watch != nil {
		a.b.watches.remove(a.watch)
		a.watch = nil
	}
}

// missed is called when something has changed in the cluster between what the owner of a watch has seen and the beginning of the
// watch. A waiter looks; a holder's look shares a request with those of others.
func (a *attempt) missed(w *watch) {
	a.mu.Lock()
	mine, state := a.watch == w, a.state
	if mine && state == leased {
		a.plan(0)
	}
	a.mu.Unlock()
	if mine && state == waiting {
		a.poke()
	}
}

// fired is called with the events of a watch; none: the server has forgotten the revision at which it was to go on.
func (a *attempt) fired(w *watch, events []*mvccpb.Event) {
	a.mu.Lock()
	if a.watch != w {
		a.mu.Unlock()
		return
	}
	state, l := a.state, a.lease
	gone := slices.ContainsFunc(events, func(e *mvccpb.Event) bool { return e.Type == mvccpb.DELETE })
	if len(events) == 0 || state == waiting && gone {
		a.unwatch()
	}
	a.mu.Unlock()
	switch state {
	case waiting:
		a.poke()
	case leased:
		l.fired(events)
	}
}

package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	first     bool     // it is the attempt's turn
	before    []string // otherwise the keys that it waits for: see waitsFor; the lock's prefix: all of them
	waiter    string   // the first request of another instance that waits behind it; "": none
	created   bool     // it is that of the transaction which has created the key
	undecided bool     // there are permits, or keys that are no requests, and more of the queue has to be seen
}

// viewOf takes the youngest of the rivals before the attempt, and the oldest behind it. A shared request's turn has come when the
// last writer before it has downgraded its lease: that one is the holder, because nobody was before it when it was exclusive
// (rule E2). A reader that finds a permit has to see all of the queue.
func (a *attempt) viewOf(revision int64, before, behind *pb.RangeResponse) *view {
	waiter, unsure := a.waits(a.shared(), behind)
	v := &view{revision: revision, waiter: waiter}
	switch {
	case len(before.GetKvs()) > 0 && tagIn(string(before.Kvs[0].Key)) == "": // somebody else's, before which may be requests
		v.undecided = true
	case len(before.GetKvs()) == 0 || a.shared() && isDowngraded(before.Kvs[0]):
		v.first, v.undecided = true, unsure
	case a.shared() && a.isPermit(before.Kvs[0]):
		v.undecided = true
	default:
		v.before = []string{string(before.Kvs[0].Key)}
	}
	return v
}

// isPermit reports that a key is a request for a permit.
func (a *attempt) isPermit(kv *mvccpb.KeyValue) bool {
	return limitIn(strings.TrimPrefix(string(kv.Key), a.dir)) > 0
}

// isDowngraded reports that the key was written a second time, which only Downgrade does.
func isDowngraded(kv *mvccpb.KeyValue) bool { return kv.Version > 1 }

// waits returns the first of another instance among the rivals behind, which wait; "": there is none. Of permits behind one that shares
// the lock it is not sure, nor of keys that are no requests, which may hide some.
func (a *attempt) waits(shared bool, behind *pb.RangeResponse) (waiter string, unsure bool) {
	for _, kv := range behind.GetKvs() {
		switch tagIn(string(kv.Key)) {
		case a.tag:
			continue
		case "":
			unsure = true
			continue
		}
		if !shared || !a.isPermit(kv) {
			return string(kv.Key), false
		}
		unsure = true
	}
	return "", unsure
}

// isOther reports that a key is a request of another instance.
func (a *attempt) isOther(kv *mvccpb.KeyValue) bool {
	tag := tagIn(string(kv.Key))
	return tag != "" && tag != a.tag
}

// look reads who is before the attempt and who behind.
func (a *attempt) look(ctx context.Context) (*view, error) {
	if a.limit > 0 {
		return a.lookAtAll(ctx)
	}
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
	v := a.viewOf(got.Header.Revision, got.Responses[1].GetResponseRange(), got.Responses[2].GetResponseRange())
	if v.undecided {
		return a.lookAtAll(ctx)
	}
	return v, nil
}

// lookAtAll reads the queue, of which a permit is counted.
func (a *attempt) lookAtAll(ctx context.Context) (*view, error) {
	got, err := a.s.txn(ctx, "look", &pb.TxnRequest{Success: []*pb.RequestOp{opAll(a.dir)}})
	if err != nil {
		return nil, err
	}
	q := requestsOf(a.dir, got.Responses[0].GetResponseRange().Kvs)
	mine, _ := a.key()
	i := slices.IndexFunc(q, func(r request) bool { return r.name == a.name && r.revision == mine })
	if i < 0 {
		return nil, errRobbed
	}
	return a.fullView(got.Header.Revision, q, i), nil
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
	since    time.Time // when the request or the look was sent
	fence    uint64    // the first of its block, greater than any before (rule E6)
	revision int64
	waiter   string
}

// grant makes the grant of a view. Permits that are held at a time may have seen the same revision, so one that has waited makes
// one of its own: a change, provided that its key is there. The others have that of their create (rule E6).
func (a *attempt) grant(ctx context.Context, since time.Time, v *view) (*grant, error) {
	if err := a.s.vouch(ctx); err != nil {
		return nil, err
	}
	revision := v.revision
	if a.limit > 0 && !v.created {
		var err error
		if revision, err = a.mark(ctx); err != nil {
			return nil, err
		}
	}
	fence, err := fenceOf(revision)
	return &grant{since, fence, v.revision, v.waiter}, err
}

// mark makes a revision that only this request has.
func (a *attempt) mark(ctx context.Context) (int64, error) {
	for {
		revision, err := a.ifOurs(ctx, "mark", opPut(a.s.writeKey(), "", a.s.lease()))
		switch {
		case errors.Is(err, distributed.ErrLeaseLost):
			return 0, errRobbed
		case !isUnknown(err) || ctx.Err() != nil:
			return revision, err
		}
		pause(ctx, firstPause) // a change more does no harm
	}
}

// follow watches the keys that the attempt waits for: their deletion, and for a shared one a downgrade. What happens between the
// look and the beginning of the watch makes it look once more. The caller holds mu.
func (a *attempt) follow(v *view) {
	followed := map[string]bool{}
	a.watching = slices.DeleteFunc(a.watching, func(w *watch) bool {
		key := string(w.req.Key)
		followed[key] = slices.Contains(v.before, key)
		if !followed[key] {
			a.b.watches.remove(w)
		}
		return !followed[key]
	})
	if a.follows = ""; len(v.before) == 1 && v.before[0] != a.dir {
		a.follows = v.before[0]
	}
	for _, key := range v.before {
		if !followed[key] {
			a.watching = append(a.watching, a.b.watches.add(a, v.revision, a.watchOf(key)))
		}
	}
}

// watchOf watches a key, or all that leave the lock.
func (a *attempt) watchOf(key string) *pb.WatchCreateRequest {
	req := &pb.WatchCreateRequest{Key: []byte(key)}
	if key == a.dir {
		req.RangeEnd = endOf(key)
	}
	if !a.shared() || key == a.dir {
		req.Filters = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}
	}
	return req
}

// watchRivals has a holder learn who enters, and an exclusive one that its own key has been deleted. The caller holds mu.
func (a *attempt) watchRivals(revision int64) {
	a.unwatch()
	rivals := a.rivals(a.lease.isShared())
	a.watching = append(a.watching, a.b.watches.add(a, revision, &pb.WatchCreateRequest{Key: []byte(rivals), RangeEnd: endOf(rivals)}))
}

// worthWatching reports that a holder has its waiter watched: one that shares the lock, since others may join again when that has left. An
// exclusive one lets nobody join, and looks every T/3. A permit that waits may be admitted beside it, and tell no more.
func (a *attempt) worthWatching(shared bool, waiter string) bool {
	return shared && waiter != "" && limitIn(strings.TrimPrefix(waiter, a.dir)) == 0
}

// watchWaiter has a holder learn that the first waiter has left. The caller holds mu.
func (a *attempt) watchWaiter(name string, revision int64) {
	if name == a.waiter && len(a.watching) > 0 {
		return
	}
	a.unwatch()
	a.waiter = name
	a.watching = append(a.watching, a.b.watches.add(a, revision, &pb.WatchCreateRequest{
		Key: []byte(name), Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT},
	}))
}

// unwatch gives the watches up. The caller holds mu.
func (a *attempt) unwatch() {
	for _, w := range a.watching {
		a.b.watches.remove(w)
	}
	a.watching, a.waiter = nil, ""
}

// missed is called when something has changed in the cluster between what the owner of a watch has seen and the beginning of the
// watch. A waiter looks; a holder's look shares a request with those of others.
func (a *attempt) missed(w *watch) {
	a.mu.Lock()
	mine, state := slices.Contains(a.watching, w), a.state
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
	if !slices.Contains(a.watching, w) {
		a.mu.Unlock()
		return
	}
	state, l := a.state, a.lease
	gone := slices.ContainsFunc(events, func(e *mvccpb.Event) bool { return e.Type == mvccpb.DELETE })
	if len(events) == 0 || state == waiting && gone && len(w.req.RangeEnd) == 0 { // it has nothing more to tell
		a.b.watches.remove(w)
		a.watching = slices.DeleteFunc(a.watching, func(one *watch) bool { return one == w })
	}
	a.mu.Unlock()
	switch state {
	case waiting:
		a.poke()
	case leased:
		l.fired(events)
	}
}

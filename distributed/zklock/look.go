package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
)

// errRobbed says that an attempt's node is gone though nobody here has deleted it.
var errRobbed = fmt.Errorf("zklock: the node of the request is gone: %w", distributed.ErrUnavailable)

// grant is what a look has found out about an attempt whose turn it is.
type grant struct {
	since     time.Time // when the request or the look was sent
	fence     uint64    // the first of its block, greater than any before (rule Z6)
	contended bool
}

// view is a look at a key's children. It is never newer than what the server knows, which may lag behind the leader. But a
// look of our session shows what our session has written, and so all that came before: if no node before ours is in
// it, then none will ever be (rule Z3).
type view struct {
	q    queue
	worn queue // nodes that are not in line
	i    int   // of our node; -1: it is not there
	zxid int64 // of the latest creation or deletion
}

// read reads the children of the key's node, and of those that have taken its place.
func (a *attempt) read(ctx context.Context, watch bool) (view, error) {
	v, err := a.b.line(a.dir, func(dir string) (children, error) { return a.children(ctx, dir, watch) })
	if err == nil {
		v.i = v.q.find(a.id)
	}
	return v, err
}

// children are those of a node, and what it says of itself.
type children struct {
	names []string
	stat  *zk.Stat
}

// children reads those of one node, and has the attempt look when they change if it is to, and that is not so already.
func (a *attempt) children(ctx context.Context, dir string, watch bool) (children, error) {
	watch = watch && a.s.watch(dir, a)
	got, err := ask(ctx, a.s, "children", func() (got children, err error) {
		if watch {
			a.b.counts.watches.Add(1)
			got.names, got.stat, _, err = a.s.conn.ChildrenW(dir)
		} else {
			got.names, got.stat, err = a.s.conn.Children(dir)
		}
		return got, err
	}, nil)
	if watch && err != nil {
		a.s.unwatch(dir, a, errors.Is(err, zk.ErrNoNode))
	}
	return got, err
}

// look finds out whether it is the attempt's turn. If not, a watch is set on the node that it waits for, or for a permit on those that
// it waits for, and the result is nil.
func (a *attempt) look(ctx context.Context, since time.Time) (*grant, error) {
	read := func() (view, error) { return a.read(ctx, false) }
	for {
		v, err := read()
		switch {
		case errors.Is(err, zk.ErrNoNode), err == nil && v.i < 0:
			a.b.forgetNext(a.dir)
			return nil, errRobbed
		case err != nil:
			return nil, err
		}
		g, err := a.judge(ctx, since, v)
		switch {
		case errors.Is(err, zk.ErrNoNode): // one that it waits for went meanwhile
		case errors.Is(err, errWide):
			read = func() (view, error) { return a.watchChildren(ctx) }
		default:
			return g, err
		}
	}
}

// judge is look when the children are known.
func (a *attempt) judge(ctx context.Context, since time.Time, v view) (*grant, error) {
	n, ok := v.q.before(v.i, a.shared())
	zxid := v.zxid
	if ok {
		if a.noWait && !a.shared() {
			return nil, nil
		}
		pred, err := a.follow(ctx, a.dir+"/"+n.name)
		if err == nil && n.id == v.q[0].id {
			a.waitsFor(pred.instance)
		}
		if err != nil || !pred.downgraded || !a.shared() {
			return nil, err
		}
		zxid = max(zxid, pred.zxid) // it is the first, because nobody was before it when it was exclusive
	}
	switch {
	case !a.shared() || v.i < v.q.admitted(ok):
		return a.grant(ctx, since, v, zxid, ok)
	case a.noWait:
		return nil, nil
	}
	return nil, a.followAll(ctx, v.q, v.q.short(v.i))
}

// grant makes the grant of a view; downgraded says that the first in line was an exclusive holder.
func (a *attempt) grant(ctx context.Context, since time.Time, v view, zxid int64, downgraded bool) (*grant, error) {
	if err := a.s.vouch(ctx); err != nil {
		return nil, err
	}
	if a.limit > 0 {
		var err error
		if zxid, err = a.ownZxid(ctx, v, downgraded); err != nil {
			return nil, err
		}
	}
	fence, err := fenceOf(zxid)
	_, contended := v.q.waiter(v.i, a.shared())
	return &grant{since, fence, contended}, err
}

// followed is what is known of the node that an attempt waits for.
type followed struct {
	downgraded bool
	instance   string
	zxid       int64 // of its latest change
}

// follow sets a watch on the node that the attempt waits for, unless it is set already.
func (a *attempt) follow(ctx context.Context, node string) (followed, error) {
	a.mu.Lock()
	known := slices.Contains(a.follows, node)
	if !known {
		a.follows = append(a.follows, node)
	}
	a.mu.Unlock()
	if !known {
		a.s.watch(node, a)
	}
	got, err := ask(ctx, a.s, "follow", func() (f followed, err error) {
		var data []byte
		var stat *zk.Stat
		if known {
			data, stat, err = a.s.conn.Get(node)
		} else {
			data, stat, _, err = a.s.conn.GetW(node)
		}
		if err == nil {
			f = followed{string(data) == downgradedData, string(data), stat.Mzxid}
		}
		return f, err
	}, nil)
	if err != nil && !known {
		a.s.unwatch(node, a, errors.Is(err, zk.ErrNoNode))
		a.unfollow(node)
	}
	return got, err
}

// waitsFor notes the holder. An attempt knows it if it is the next in line: others follow another waiter.
func (a *attempt) waitsFor(instance string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holder = instance
}

// unfollow forgets a watch: it was not set, or it has fired.
func (a *attempt) unfollow(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.follows = slices.DeleteFunc(a.follows, func(one string) bool { return one == node })
}

// taken is the look of a request with NoWait. A node is created only if nobody is in the way, so that a request
// that is refused disturbs nobody. A server that lags may show a holder that has gone, so it is asked to catch up before
// a refusal.
func (a *attempt) taken(ctx context.Context, prev *prev) (bool, error) {
	if err := prev.wait(ctx); err != nil {
		return false, err
	}
	held, err := a.inTheWay(ctx, prev)
	if err != nil || !held {
		return false, err
	}
	if err = a.s.sync(ctx); err != nil {
		return false, err
	}
	if held, err = a.inTheWay(ctx, prev); held && err == nil {
		prev.giveUp()
		err = prev.wait(ctx)
	}
	return held, err
}

func (a *attempt) inTheWay(ctx context.Context, prev *prev) (bool, error) {
	v, err := a.read(ctx, false)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	q := v.q.without(strings.TrimPrefix(prev.node(), a.dir+"/"))
	n, ok := q.before(len(q), a.shared())
	if !ok {
		return !a.isNext(q, false), nil
	}
	if !a.shared() {
		return true, nil
	}
	data, err := ask(ctx, a.s, "holder", func() ([]byte, error) {
		data, _, err := a.s.conn.Get(a.dir + "/" + n.name)
		return data, err
	}, nil)
	if errors.Is(err, zk.ErrNoNode) {
		return true, nil // and the second look will not see it
	}
	return string(data) != downgradedData || !a.isNext(q, true), err
}

// isNext reports whether a request that is created now would be admitted behind these, of which none is a writer, or the first has
// downgraded its lease.
func (a *attempt) isNext(q queue, downgraded bool) bool {
	all := append(slices.Clip(q), node{shared: a.shared(), limit: a.limit})
	return q.admitted(downgraded) == len(q) && (!a.shared() || all.admitted(downgraded) == len(all))
}

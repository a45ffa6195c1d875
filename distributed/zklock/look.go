package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
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
	i    int   // of our node; -1: it is not there
	zxid int64 // of the latest creation or deletion
}

func (a *attempt) read(ctx context.Context, watch bool) (view, error) {
	type answer struct {
		children []string
		stat     *zk.Stat
	}
	got, err := ask(ctx, a.s, "children", func() (got answer, err error) {
		if watch {
			got.children, got.stat, _, err = a.s.conn.ChildrenW(a.dir)
		} else {
			got.children, got.stat, err = a.s.conn.Children(a.dir)
		}
		return got, err
	}, nil)
	if err != nil {
		return view{i: -1}, err
	}
	q := parse(got.children)
	return view{q, q.find(a.id), got.stat.Pzxid}, nil
}

// look finds out whether it is the attempt's turn. If not, a watch is set on the one node that it waits for, and the result is
// nil.
func (a *attempt) look(ctx context.Context, since time.Time) (*grant, error) {
	for {
		v, err := a.read(ctx, false)
		switch {
		case errors.Is(err, zk.ErrNoNode), err == nil && v.i < 0:
			return nil, errRobbed
		case err != nil:
			return nil, err
		}
		n, ok := v.q.before(v.i, a.shared())
		switch {
		case !ok:
			return a.grant(ctx, since, v, v.zxid)
		case a.noWait && !a.shared():
			return nil, nil
		}
		pred, err := a.follow(ctx, a.dir+"/"+n.name)
		if err == nil && n.id == v.q[0].id {
			a.waitsFor(pred.instance)
		}
		switch {
		case errors.Is(err, zk.ErrNoNode):
			continue // it went meanwhile
		case err != nil:
			return nil, err
		case pred.downgraded && a.shared(): // it is the holder, because nobody was before it when it was exclusive
			return a.grant(ctx, since, v, max(v.zxid, pred.zxid))
		}
		return nil, nil
	}
}

func (a *attempt) grant(ctx context.Context, since time.Time, v view, zxid int64) (*grant, error) {
	if err := a.s.vouch(ctx); err != nil {
		return nil, err
	}
	fence, err := fenceOf(zxid)
	return &grant{since, fence, v.q.waited(v.i, a.shared())}, err
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
	known := a.follows == node
	a.follows = node
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
	if a.follows == node {
		a.follows = ""
	}
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
	q := v.q.without(path.Base(prev.node()))
	n, ok := q.before(len(q), a.shared())
	if !ok {
		return false, nil
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
	return string(data) != downgradedData, err
}

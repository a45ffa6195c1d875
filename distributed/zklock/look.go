package zklock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/keyless"
)

// errRobbed says that an attempt's node is gone though nobody here has deleted it.
var errRobbed = keyless.Errorf("zklock: the node of the request is gone: %w", distributed.ErrUnavailable)

// snapshot is a look at a key's children. It is never newer than what the server knows, which may lag behind the leader. But a
// look of our session shows what our session has written, and so all that came before: if no node before ours is in
// it, then none will ever be (rule Z3).
type snapshot struct {
	q    queue
	worn queue // nodes that are not in line
	i    int   // of our node; -1: it is not there
	zxid int64 // of the latest creation or deletion
}

// read reads the children of the key's node, and of those that have taken its place.
func (c *claim) read(ctx context.Context, watch bool) (snapshot, error) {
	v, err := c.b.line(c.dir, func(dir string) (children, error) { return c.children(ctx, dir, watch) })
	if err == nil {
		v.i = v.q.find(c.id)
	}
	return v, err
}

// children are those of a node, and what it says of itself.
type children struct {
	names []string
	stat  *zk.Stat
}

// children reads those of one node, and has the attempt look when they change if it is to, and that is not so already.
func (c *claim) children(ctx context.Context, dir string, watch bool) (children, error) {
	watch = watch && c.s.watch(dir, c)
	got, err := ask(ctx, c.s, "children", func() (got children, err error) {
		if watch {
			c.b.counts.watches.Add(1)
			got.names, got.stat, _, err = c.s.conn.ChildrenW(dir)
		} else {
			got.names, got.stat, err = c.s.conn.Children(dir)
		}
		return got, err
	}, nil)
	if watch && err != nil {
		c.s.unwatch(dir, c, errors.Is(err, zk.ErrNoNode))
	}
	return got, err
}

// look finds out whether it is the attempt's turn. If not, a watch is set on the node that it waits for, or for a permit on those that
// it waits for.
func (c *claim) look(ctx context.Context, since time.Time) (driver.Standing, error) {
	for {
		c.a.Asks()
		v, err := c.live(ctx, c.wide)
		switch {
		case errors.Is(err, zk.ErrNoNode), err == nil && v.i < 0:
			c.b.forgetNext(c.dir)
			return driver.Standing{}, errRobbed
		case err != nil:
			return driver.Standing{}, err
		}
		s, err := c.judge(ctx, since, v)
		switch {
		case errors.Is(err, zk.ErrNoNode): // one that it waits for went meanwhile
		case errors.Is(err, errWide):
			c.wide = true
		default:
			if s.Kind == driver.Queued && v.q[0].standsIn() {
				s.Next = min(distributed.HeartbeatInterval(c.a.TTL), max(time.Until(c.frontEnds), time.Millisecond))
			}
			return s, err
		}
	}
}

// judge is look when the children are known.
func (c *claim) judge(ctx context.Context, since time.Time, v snapshot) (driver.Standing, error) {
	n, ok := v.q.before(v.i, c.a.Shares())
	zxid := v.zxid
	if ok {
		if c.a.NoWait && !c.a.Shares() {
			return c.waits(), nil
		}
		pred, err := c.follow(ctx, c.dir+"/"+n.name)
		if err == nil && n.id == v.q[0].id {
			c.holder = pred.instance
		}
		if err != nil || !pred.downgraded || !c.a.Shares() {
			return c.waits(), err
		}
		zxid = max(zxid, pred.zxid) // it is the first, because nobody was before it when it was exclusive
	}
	switch {
	case !c.a.Shares() || v.i < driver.Admitted(v.q, ok):
		return c.grant(ctx, since, v, zxid, ok)
	case c.a.NoWait:
		return c.waits(), nil
	}
	err := c.followAll(ctx, v.q, driver.KeepsOut(v.q, v.i, ok))
	return c.waits(), err
}

// waits is how a waiter stands.
func (c *claim) waits() driver.Standing {
	return driver.Standing{Kind: driver.Queued, Holder: c.holder}
}

// grant is what makes a lease of a snapshot; downgraded says that the first in line was an exclusive holder.
func (c *claim) grant(ctx context.Context, since time.Time, v snapshot, zxid int64, downgraded bool) (driver.Standing, error) {
	if err := c.s.vouch(ctx); err != nil {
		return driver.Standing{}, err
	}
	if c.a.Limit > 0 {
		var err error
		if zxid, err = c.ownZxid(ctx, v, downgraded); err != nil {
			return driver.Standing{}, err
		}
	}
	block, err := fences.Block(zxid, c.a.Limit > 0)
	_, contended := v.q.waiter(v.i, c.a.Shares())
	s := driver.Standing{Kind: driver.Granted, Sent: since, Fences: block, Contended: contended, Next: lookPause}
	if contended {
		s.Next = c.nextLook(true)
	}
	c.contended = contended
	return s, err
}

// followed is what is known of the node that an attempt waits for.
type followed struct {
	downgraded bool
	instance   string
	zxid       int64 // of its latest change
}

// follow reads the node that the attempt waits for, and sets a watch on it, unless it is set already.
func (c *claim) follow(ctx context.Context, node string) (followed, error) {
	first := c.s.watch(node, c)
	got, err := ask(ctx, c.s, "follow", func() (f followed, err error) {
		var data []byte
		var stat *zk.Stat
		if first {
			data, stat, _, err = c.s.conn.GetW(node)
		} else {
			data, stat, err = c.s.conn.Get(node)
		}
		if err == nil {
			instance, _ := instanceIn(string(data))
			f = followed{string(data) == downgradedData, instance, stat.Mzxid}
		}
		return f, err
	}, nil)
	if err != nil && first {
		c.s.unwatch(node, c, errors.Is(err, zk.ErrNoNode))
	}
	return got, err
}

// taken is the look of a request with NoWait. A node is created only if nobody is in the way, so that a request
// that is refused disturbs nobody. A server that lags may show a holder that has gone, so it is asked to catch up before
// a refusal.
func (c *claim) taken(ctx context.Context, prev *driver.Prev[claim]) (bool, error) {
	if err := prev.Wait(ctx); err != nil {
		return false, err
	}
	held, err := c.inTheWay(ctx, prev)
	if err != nil || !held {
		return false, err
	}
	if err = c.s.sync(ctx); err != nil {
		return false, err
	}
	if held, err = c.inTheWay(ctx, prev); held && err == nil {
		prev.GiveUp()
		err = prev.Wait(ctx)
	}
	return held, err
}

func (c *claim) inTheWay(ctx context.Context, prev *driver.Prev[claim]) (bool, error) {
	v, err := c.live(ctx, false)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	q := v.q.without(strings.TrimPrefix(pathOf(prev), c.dir+"/"))
	n, ok := q.before(len(q), c.a.Shares())
	if !ok {
		return !c.isNext(q, false), nil
	}
	if !c.a.Shares() {
		return true, nil
	}
	data, err := ask(ctx, c.s, "holder", func() ([]byte, error) {
		data, _, err := c.s.conn.Get(c.dir + "/" + n.name)
		return data, err
	}, nil)
	if errors.Is(err, zk.ErrNoNode) {
		return true, nil // and the second look will not see it
	}
	return string(data) != downgradedData || !c.isNext(q, true), err
}

// isNext reports whether a request that is created now would be admitted behind these, of which none is a writer, or the first has
// downgraded its lease.
func (c *claim) isNext(q queue, downgraded bool) bool {
	all := append(slices.Clip(q), node{Asked: driver.Asked{Shared: c.a.Shares(), Limit: c.a.Limit}})
	return driver.Admitted(q, downgraded) == len(q) && (!c.a.Shares() || driver.Admitted(all, downgraded) == len(all))
}

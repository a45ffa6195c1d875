package zklock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/parts"
)

var _ distributed.Inspector = (*Backend)(nil)

// nodeFacts is what a request's node says beside its name.
type nodeFacts struct {
	node
	instance string // "": not known, its holder has made it a shared one
	since    time.Time
	created  int64         // the zxid of its creation, which no other node has; sequences begin anew with a key's node
	zxid     int64         // of its latest change
	left     time.Duration // of a detached lease, by our own clock; 0: not known
}

// Inspect implements distributed.Inspector. It lists the children, and reads each node that it names, all at once: these are reads of one
// server, without work for the ensemble. Since is when a request was made. How long a lease lasts is not known, because that depends on its
// session.
func (b *Backend) Inspect(ctx context.Context, key string) (distributed.Inspection, error) {
	found := distributed.Inspection{Key: key}
	s, ctx, cancel, err := b.session(ctx, "")
	defer cancel()
	if err != nil {
		return found, err
	}
	if err = b.describe(ctx, s, &found, distributed.MaxNamed, distributed.MaxNamed); err == nil {
		found.Broken, err = b.brokenOf(ctx, s, key)
	}
	return found, b.engine.OrClosed(err)
}

// describe fills in what is known of a key, and names so many.
func (b *Backend) describe(ctx context.Context, s *session, to *distributed.Inspection, holders, waiters int) error {
	q, zxid, err := b.queueOf(ctx, s, to.Key)
	if err != nil || len(q) == 0 {
		return err
	}
	first, err := b.facts(ctx, s, to.Key, q[:1])
	if err != nil || len(first) == 0 {
		return err
	}
	inside := holdersOf(q, first[0])
	named := slices.Concat(q[:min(inside, holders)], q[inside:min(inside+waiters, len(q))])
	all, err := b.facts(ctx, s, to.Key, named[1:])
	if err != nil {
		return err
	}
	to.Since = first[0].since
	if inside > 1 || first[0].Shared || first[0].instance == downgradedData {
		to.Mode = distributed.Shared
	}
	latest, youngest := zxid, int64(0)
	for _, f := range append(first, all...) {
		if slices.IndexFunc(q, func(n node) bool { return n.id == f.id }) < inside {
			to.Holders = append(to.Holders, distributed.Holder{Instance: f.instance, Since: f.since, Left: f.left})
			latest, youngest = max(latest, f.zxid), max(youngest, f.created)
			continue
		}
		mode := distributed.Exclusive
		if f.Shared {
			mode = distributed.Shared
		}
		to.Waiters = append(to.Waiters, distributed.Waiter{Instance: f.instance, Mode: mode, Since: f.since})
	}
	to.State = strconv.FormatInt(youngest, 10) // of those that are named
	to.MoreHolders, to.MoreWaiters = max(inside-holders, 0), max(len(q)-inside-waiters, 0)
	to.Fence = fences.Last(latest)
	return nil
}

// holdersOf is how many at the head of the queue hold the lock.
func holdersOf(q queue, first nodeFacts) int {
	return driver.Admitted(q, first.instance == downgradedData)
}

// queueOf returns the requests for a key, none if it has no node, and the zxid of the latest change.
func (b *Backend) queueOf(ctx context.Context, s *session, key string) (queue, int64, error) {
	changed := int64(0) // the key's node itself, by a refill
	v, err := b.line(b.dirOf(key), func(dir string) (children, error) {
		return ask(ctx, s, "inspect", func() (got children, err error) {
			got.names, got.stat, err = s.conn.Children(dir)
			if err == nil {
				changed = max(changed, got.stat.Mzxid)
			}
			return got, err
		}, nil)
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, 0, nil
	}
	return v.q, max(v.zxid, changed), err
}

// facts reads nodes, all at once. Those that have gone are left out.
func (b *Backend) facts(ctx context.Context, s *session, key string, nodes []node) ([]nodeFacts, error) {
	all, errs := make([]nodeFacts, len(nodes)), make([]error, len(nodes))
	var reads sync.WaitGroup
	for i, n := range nodes {
		reads.Go(func() {
			all[i], errs[i] = ask(ctx, s, "inspect", func() (nodeFacts, error) {
				data, stat, err := s.conn.Get(b.dirOf(key) + "/" + n.name)
				if err != nil {
					return nodeFacts{}, err
				}
				instance, lasts := instanceIn(string(data))
				since := time.UnixMilli(stat.Ctime)
				return nodeFacts{n, instance, since, stat.Czxid, stat.Mzxid, max(lasts-time.Since(since), 0)}, nil
			}, nil)
		})
	}
	reads.Wait()
	var there []nodeFacts
	for i, err := range errs {
		switch {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return nil, err
		default:
			there = append(there, all[i])
		}
	}
	return there, nil
}

// List implements distributed.Inspector. Each page lists the root, whose size is that of all keys, and then looks at the keys of the page. The
// cursor is the last of them. List has a connection of its own: an answer that is too large ends the connection, and a slow one holds up all
// others.
func (b *Backend) List(ctx context.Context, prefix, cursor string, limit int) ([]distributed.Inspection, string, error) {
	if err := parts.CheckPage("zklock", limit); err != nil {
		return nil, "", err
	}
	s, ctx, cancel, err := b.session(ctx, lists)
	defer cancel()
	if err != nil {
		return nil, "", err
	}
	keys, err := b.keysAfter(ctx, s, prefix, cursor)
	if err != nil {
		return nil, "", b.engine.OrClosed(err)
	}
	next := ""
	if len(keys) > limit {
		keys, next = keys[:limit], keys[limit-1]
	}
	var page []distributed.Inspection
	for _, key := range keys {
		found := distributed.Inspection{Key: key}
		if err = b.describe(ctx, s, &found, 1, 0); err != nil {
			return nil, "", b.engine.OrClosed(err)
		}
		if found.Held() {
			page = append(page, found)
		}
	}
	return page, next, nil
}

// keysAfter returns the keys with a prefix that come after the cursor, in order.
func (b *Backend) keysAfter(ctx context.Context, s *session, prefix, cursor string) (keys []string, err error) {
	names, err := ask(ctx, s, "list", func() ([]string, error) {
		names, _, err := s.conn.Children(b.rootPath())
		return names, err
	}, nil)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	for _, name := range names {
		if key, err := Key(name); err == nil && strings.HasPrefix(key, prefix) && key > cursor {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, err
}

package zklock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/keyless"
)

// A permit is a shared request whose id begins with its limit: all who read the children can count. Names have the form of other shared
// ones, so a process of a version without permits takes it for a reader, for which its writers wait.
const (
	limitMark   = "9" // no id of another request begins so
	limitDigits = 6
	// mostLimit is the largest limit: more than a node can have children.
	mostLimit = 1<<(4*limitDigits) - 1
)

// idOf puts the limit into a random id.
func idOf(random string, limit int) string {
	if limit == 0 {
		return random[:idLength]
	}
	return fmt.Sprintf("%s%0*x%s", limitMark, limitDigits, min(limit, mostLimit), random[:idLength-len(limitMark)-limitDigits])
}

// limitIn is the limit in the id of a permit; 0: it is none.
func limitIn(id string) int {
	if id[:len(limitMark)] != limitMark {
		return 0
	}
	limit, err := strconv.ParseUint(id[len(limitMark):len(limitMark)+limitDigits], 16, 32)
	if err != nil {
		return 0
	}
	return int(limit)
}

// errWide says that too many nodes are to be watched.
var errWide = keyless.Errorf("zklock: the children are to be watched")

// followAll watches nodes of a queue; the answer is zk.ErrNoNode if one of them has gone.
func (c *claim) followAll(ctx context.Context, q queue, nodes []node) error {
	if len(nodes) > driver.MostFollowed {
		if c.wide { // this look has set the watches
			return nil
		}
		return errWide
	}
	c.wide = false
	errs := make([]error, len(nodes))
	var reads sync.WaitGroup
	for i, n := range nodes {
		if path := c.dir + "/" + n.name; !c.s.watches(path, c) { // else its watch tells
			reads.Go(func() {
				var f followed
				if f, errs[i] = c.follow(ctx, path); errs[i] == nil && n.id == q[0].id { // which one of them is, at most
					c.holder = distributed.HolderText(f.instance, driver.Admitted(q, true)-1)
				}
			})
		}
	}
	reads.Wait()
	return errors.Join(errs...)
}

// ownZxid is a zxid that only this permit has, and that is above those of all leases which ended before it was admitted: that of its
// node's creation, if nothing has changed since, and else that of a change, which is made provided that the node is there. What a look
// has seen would not do: others that are admitted beside it may have seen the same (rule Z6).
func (c *claim) ownZxid(ctx context.Context, v snapshot, downgraded bool) (int64, error) {
	path := c.dir + "/" + v.q[v.i].name
	if v.i == len(v.q)-1 && !downgraded {
		created, err := ask(ctx, c.s, "own", func() (int64, error) {
			_, stat, err := c.s.conn.Get(path)
			if err != nil {
				return 0, err
			}
			return stat.Czxid, nil
		}, nil)
		if err == nil && created == v.zxid || err != nil && !errors.Is(err, zk.ErrNoNode) {
			return created, err
		}
	}
	zxid, err := c.mark(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		err = errRobbed
	}
	return zxid, err
}

// mark changes something, provided that the node is there, and returns the zxid of the change.
func (c *claim) mark(ctx context.Context, path string) (int64, error) {
	return ask(ctx, c.s, "mark", func() (int64, error) {
		answers, err := c.s.conn.Multi(&zk.CheckVersionRequest{Path: path, Version: -1}, &zk.SetDataRequest{Path: c.dir, Version: -1})
		if err != nil {
			return 0, err
		}
		return answers[1].Stat.Mzxid, nil
	}, nil)
}

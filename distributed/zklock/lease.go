package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
)

const (
	// downgradedData is the content of an exclusive request's node whose holder has made it a shared one: none. Before that it is the
	// instance, which may have any name but an empty one.
	downgradedData = ""
	// lookPause is how long after its grant, or a change, a holder looks whether somebody waits: most holds are shorter, and never
	// pay for it.
	lookPause = 2 * time.Millisecond
)

// keptFor is how long a renewal makes a lease last, as the Keeper knows it: so it renews when two fifths of the time-out are
// left, which is more than the third of a TTL that a hand-off takes. After a renewal three fifths are left.
func keptFor(timeout time.Duration) time.Duration { return timeout * 3 / 5 }

// nextLook is when to look again whether somebody waits: as a renewal of a backend without sessions would; without a waiter there
// is a watch, and the look is a precaution.
func (c *claim) nextLook(contended bool) time.Duration {
	lasts := min(c.a.TTL, c.s.timeout())
	if contended {
		return distributed.RenewInterval(lasts)
	}
	return lasts
}

// lookBehind finds out whether another instance waits, and whether the node is still there. As long as nobody waits, a watch tells.
// After its event, and while somebody waits, the holder looks without setting one, or it would be woken by every waiter. A holder
// of a shared lease watches the first that waits: should that one leave, readers may join again.
func (c *claim) lookBehind(ctx context.Context) {
	if !c.a.Held() {
		return
	}
	shared, fired := c.a.Shares(), c.changed.Swap(false)
	watch := !c.contended && !fired
	v, err := c.read(ctx, watch)
	switch {
	case errors.Is(err, zk.ErrNoNode) || err == nil && v.i < 0:
		c.a.Gone()
		return
	case err != nil:
		c.a.LookIn(c.s.beat())
		return
	}
	n, waited := v.q.waiter(v.i, shared)
	if path := c.dir + "/" + n.name; waited && shared && !c.s.watches(path, c) {
		if _, err = c.follow(ctx, path); errors.Is(err, zk.ErrNoNode) { // it has left meanwhile
			c.changed.Store(true)
		}
	}
	c.contended = waited
	next, changed := c.nextLook(waited), c.changed.Load()
	if changed { // by an event that came while we looked, perhaps of an earlier look's watch: look again
		next = lookPause
	}
	c.a.Stands(driver.Standing{Kind: driver.Granted, Contended: waited, Next: next})
	if !changed && !watch && !waited { // what has changed was nothing, or has gone
		c.a.Poke()
	}
}

// Share implements driver.Driver: the node has no content from now on. Readers that wait for it watch it.
func (d half) Share(ctx context.Context, a *attempt) (driver.Standing, error) {
	shared := func(zxid int64, err error) (driver.Standing, error) {
		block, err := blockOf(zxid, false, err)
		return driver.Standing{Fences: block, Next: driver.Never}, err
	}
	zxid, err := ask(ctx, a.Wire.s, "downgrade", func() (int64, error) {
		stat, err := a.Wire.s.conn.Set(a.Wire.path(), []byte(downgradedData), -1)
		if err != nil {
			return 0, err
		}
		return stat.Mzxid, nil
	}, func(zxid int64, err error) {
		if s, err := shared(zxid, err); err == nil {
			a.Shared(s)
		}
	})
	return shared(zxid, err)
}

// Refill implements driver.Driver: any change has a new zxid. It is made only if our node is there, so its zxid comes before that of
// our deletion, which lets the next one in.
func (d half) Refill(ctx context.Context, a *attempt) (driver.Block, error) {
	zxid, err := a.Wire.mark(ctx, a.Wire.path())
	return blockOf(zxid, a.Limit > 0, err)
}

// blockOf returns the fences of a zxid, or the error of the change that has made it.
func blockOf(zxid int64, permit bool, err error) (driver.Block, error) {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return driver.Block{}, distributed.ErrLeaseLost
	case err != nil:
		return driver.Block{}, err
	}
	return fences.Block(zxid, permit)
}

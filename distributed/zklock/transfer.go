package zklock

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/keyless"
)

var _ driver.Transferer[claim] = half{}

// standInMark begins the id of a node that stands in for a holder's while its lease is detached (rule Z11). No id of another request begins so.
const standInMark = "8"

// standInID follows from the name of a detached lease, so each process that knows it finds the node.
func standInID(detached string) string {
	sum := sha256.Sum256([]byte(detached))
	return standInMark + base32.StdEncoding.EncodeToString(sum[:])[:idLength-len(standInMark)]
}

func (n node) standsIn() bool { return !n.Shared && strings.HasPrefix(n.id, standInMark) }

// content is what the attempt's node has: its instance, and of one that stands in for how long.
func (c *claim) content() []byte {
	if c.standsIn {
		return []byte(c.a.Instance + " " + c.a.Lasts.String())
	}
	return []byte(c.a.Instance)
}

// instanceIn reads the content of a node. lasts is 0 unless it stands in.
func instanceIn(content string) (instance string, lasts time.Duration) {
	name, text, _ := strings.Cut(content, " ")
	if lasts, err := time.ParseDuration(text); err == nil && (distributed.Holder{Instance: name}).Detached() {
		return name, lasts
	}
	return content, 0
}

// errDowngraded says that a Downgrade was carried out that was not answered.
var errDowngraded = keyless.Errorf("zklock: transfer: the lease was downgraded: %w", distributed.ErrUnavailable)

// Detached implements driver.Transferer. No session keeps its node, so any serves.
func (d half) Detached(_ context.Context, a *attempt, _ string) error {
	s, err := d.sessions.Any(d.classOf(""))
	if err == nil {
		a.Wire.init(a, s, standInID(a.Instance))
		a.Wire.standsIn, a.Wire.lost, a.Lasts = true, true, a.TTL
	}
	return err
}

// Transfer implements driver.Transferer. The session that asks is that of the attempt which has one: what drops it is sent behind.
func (d half) Transfer(ctx context.Context, from, to *attempt) (driver.Standing, error) {
	own := &to.Wire
	if own.standsIn {
		own = &from.Wire
	}
	ctx, cancel := context.WithTimeout(ctx, own.a.Window)
	defer cancel()
	sent := time.Now()
	if err := own.transfer(ctx, &from.Wire, &to.Wire); err != nil || to.Wire.standsIn {
		return driver.Standing{Kind: driver.Granted}, err
	}
	return repeated(ctx, own, func() (driver.Standing, error) { return own.look(ctx, sent) })
}

// transfer tries until a look shows that one node has taken the place of the other, or that both are gone.
func (c *claim) transfer(ctx context.Context, from, to *claim) error {
	for {
		err := c.s.await(ctx)
		if err == nil {
			err = c.s.sync(ctx)
		}
		var v snapshot
		if err == nil {
			v, err = c.live(ctx, false)
		}
		i, j := v.q.find(from.id), v.q.find(to.id)
		switch {
		case errors.Is(err, zk.ErrNoNode), err == nil && i < 0 && j < 0:
			return distributed.ErrLeaseLost
		case err == nil && j >= 0:
			to.created(v.q[j].name)
			return nil
		case err == nil:
			err = c.replace(ctx, v.q[i], to)
		}
		switch {
		case errors.Is(err, zk.ErrBadVersion):
			return errDowngraded
		case isInterruption(err):
			pause(ctx)
		case !isAnswer(err):
			return err
		}
	}
}

// replace puts the node of an attempt in the place of another one, for which its name has the same sequence. First it creates: who sees
// only one of the two steps sees both nodes.
func (c *claim) replace(ctx context.Context, old node, to *claim) error {
	dir, name := path.Split(old.name)
	request := zk.CreateRequest{
		Path: c.dir + "/" + dir + head(distributed.Exclusive, to.tag, to.id) + name[headLength:], Data: to.content(), Acl: c.b.set.acl,
		Flags: zk.FlagEphemeral,
	}
	if to.standsIn {
		request.Flags = zk.FlagPersistent
	}
	to.isCreating(true)
	_, err := ask(ctx, c.s, "transfer", func() (string, error) {
		_, err := c.s.conn.Multi(&request, &zk.DeleteRequest{Path: c.dir + "/" + old.name})
		return request.Path, err
	}, to.createdLate)
	if !errors.Is(err, errLate) {
		to.createdLate(request.Path, err)
	}
	return err
}

// live reads the children, and deletes a node that stands in for longer than it should.
func (c *claim) live(ctx context.Context, watch bool) (snapshot, error) {
	for {
		v, err := c.read(ctx, watch)
		if err != nil || len(v.q) == 0 || !v.q[0].standsIn() || v.q[0].name == c.front && time.Now().Before(c.frontEnds) {
			return v, err
		}
		left, err := c.expire(ctx, c.dir+"/"+v.q[0].name)
		switch {
		case left > 0:
			c.front, c.frontEnds = v.q[0].name, time.Now().Add(left)
			return v, nil
		case err != nil && !isAnswer(err):
			return v, err
		}
	}
}

// expire deletes the node if its time is over, by the leader's clock, which has dated it and dates a change that is made now.
func (c *claim) expire(ctx context.Context, path string) (left time.Duration, err error) {
	return ask(ctx, c.s, "expire", func() (time.Duration, error) {
		content, stat, err := c.s.conn.Get(path)
		if err != nil {
			return 0, err
		}
		now, err := c.s.conn.Set(c.dir, nil, -1)
		if err != nil {
			return 0, err
		}
		_, lasts := instanceIn(string(content))
		left := lasts - time.Duration(now.Mtime-stat.Ctime)*time.Millisecond
		if left > 0 {
			return left, nil
		}
		return 0, c.s.conn.Delete(path, stat.Version)
	}, nil)
}

// Detach implements distributed.Transferer.
func (b *Backend) Detach(ctx context.Context, l distributed.Lease, id string, lasts time.Duration) error {
	return b.engine.Detach(ctx, l, id, lasts)
}

// Adopt implements distributed.Transferer.
func (b *Backend) Adopt(ctx context.Context, req distributed.Request, id string) (distributed.Lease, error) {
	return b.engine.Adopt(ctx, req, id)
}

// Discard implements distributed.Transferer.
func (b *Backend) Discard(ctx context.Context, req distributed.Request, id string) error {
	return b.engine.Discard(ctx, req, id)
}

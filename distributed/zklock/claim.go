package zklock

import (
	"context"
	"crypto/rand"
	"errors"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

type attempt = driver.Attempt[claim]

// claim is the node of an attempt, from the first request to the last deletion; the id in the node's name is its own.
type claim struct {
	a       *attempt
	b       *Backend
	s       *session
	dir     string // the path of the lock's node
	tag, id string

	standsIn bool // of a detached lease: the node stands in for its holder's

	// Of Enter and then of Look, of which there is one at a time.
	front     string // the node of a detached lease that is first in line
	frontEnds time.Time
	wide      bool   // the children of the lock's nodes are watched, in place of single ones
	contended bool   // of a holder, as it was told last
	holder    string // of a waiter: whose node it waits for, if that holds the lock; "": not known

	changed atomic.Bool // of a holder: a watch has fired since the latest look

	mu       sync.Mutex // guards all below
	node     string     // name of its node; "" before it is known
	creating bool       // a create is under way, perhaps without its caller
	lost     bool       // the answer to a create was lost: there is a node of it, or not
}

// half is the Backend as its engine sees it.
type half struct{ *Backend }

var engineSettings = driver.Settings{Name: "zklock", LookMost: 1, DropMost: 1, Drops: maxRemoving}

// maxRemoving is how many deletions are under way at a time; more wait in line, on the one connection anyway.
const maxRemoving = 64

// Prepare implements driver.Driver.
func (d half) Prepare(ctx context.Context, a *attempt) error {
	s, err := d.forTTL(ctx, a.TTL)
	if err != nil {
		return err
	}
	a.Wire.init(a, s, idOf(rand.Text(), a.Limit))
	return nil
}

func (c *claim) init(a *attempt, s *session, id string) {
	a.Lane, a.Lasts = s.Lane, keptFor(s.timeout())
	c.a, c.b, c.s, c.dir, c.tag, c.id = a, s.b, s, s.b.dirOf(a.Key), parts.Tag(a.Instance), id
}

// Ended implements driver.Driver: a watch that is set stays until it fires, as the client library cannot take it back.
func (d half) Ended(*attempt) {}

// Close implements driver.Driver.
func (d half) Close() { d.sessions.Close() }

// Enter implements driver.Driver.
func (d half) Enter(ctx context.Context, a *attempt, prev *driver.Prev[claim]) (driver.Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Window)
	defer cancel()
	c := &a.Wire
	if a.NoWait {
		held, err := repeated(ctx, c, func() (bool, error) { return c.taken(ctx, prev) })
		if held || err != nil {
			prev.GiveUp()
			return driver.Standing{Kind: driver.Refused}, err
		}
	}
	sent := time.Now()
	if err := c.create(ctx, prev); err != nil {
		return driver.Standing{}, err
	}
	s, err := repeated(ctx, c, func() (driver.Standing, error) { return c.look(ctx, sent) })
	if err == nil && a.NoWait && s.Kind == driver.Queued {
		err = distributed.ErrHeld
	}
	return s, err
}

// repeated asks again after an interruption, as soon as there is a connection.
func repeated[T any](ctx context.Context, c *claim, ask func() (T, error)) (T, error) {
	got, err := ask()
	for isInterruption(err) && c.s.await(ctx) == nil {
		pause(ctx)
		got, err = ask()
	}
	return got, err
}

// Look implements driver.Driver.
func (d half) Look(ctx context.Context, some []*attempt) {
	for _, a := range some {
		c := &a.Wire
		limited, cancel := context.WithTimeout(ctx, max(c.s.timeout(), time.Second))
		if a.Waiting() {
			c.advance(limited)
		} else {
			c.lookBehind(limited)
		}
		cancel()
	}
}

// advance looks whether it is the waiter's turn.
func (c *claim) advance(ctx context.Context) {
	s, err := c.look(ctx, time.Now())
	switch {
	case errors.Is(err, errRobbed):
		c.a.Gone()
	case err == nil:
		c.a.Stands(s)
	}
}

// event is called when something has happened to a node that the attempt watches. A holder looks a little later: several
// may come or go at once.
func (c *claim) event() {
	if c.a.Held() {
		c.changed.Store(true)
		c.a.LookIn(lookPause)
	} else {
		c.a.Poke()
	}
}

// path is that of the node; "": it is not known, or there is none.
func (c *claim) path() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node == "" {
		return ""
	}
	return c.dir + "/" + c.node
}

// pathOf is the path that a request is to delete, or "".
func pathOf(prev *driver.Prev[claim]) string {
	if a := prev.Mine(); a != nil {
		return a.Wire.path()
	}
	return ""
}

// Drop implements driver.Driver. A node that stays would keep the lock as long as the session lives.
func (d half) Drop(ctx context.Context, some []*attempt) {
	for _, a := range some {
		c := &a.Wire
		found, err := c.drop(ctx)
		if err == nil {
			a.Dropped(found)
		} else if err = lacks("delete", path.Dir(c.path()), err); errors.Is(err, distributed.ErrRefused) {
			a.DropRefused(err)
		}
	}
}

// drop deletes the node of a request. The answer is an interruption while a create is under way, or without a connection: the create's
// answer and the connection begin the next try.
func (c *claim) drop(ctx context.Context) (driver.Outcome, error) {
	c.mu.Lock()
	creating, lost := c.creating, c.lost
	c.mu.Unlock()
	switch {
	case creating || c.s.downAt.Load():
		return driver.Unknown, zk.ErrConnectionClosed
	case lost:
		if _, err := c.recover(ctx); err != nil {
			return driver.Unknown, err
		}
	}
	path := c.path()
	if path == "" {
		return driver.Missing, nil
	}
	sent := time.Now()
	err := c.s.conn.Delete(path, -1)
	c.b.observe(sent, err)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return driver.Missing, nil
	case isInterruption(err):
		c.a.Dropped(driver.Unknown)
	}
	return driver.Removed, err
}

// create creates the attempt's node, and deletes that of prev with it, in one transaction. A create whose answer was lost has
// been carried out or not: the id in the name tells (rule Z1).
func (c *claim) create(ctx context.Context, prev *driver.Prev[claim]) error {
	for {
		node, err := c.createIn(ctx, c.b.nextOf(c.dir), pathOf(prev)) // now: when ctx ends, prev is given up
		switch {
		case err == nil:
			c.created(node)
			return c.arrived(ctx, prev)
		case errors.Is(err, errPrevGone):
			prev.Settle(driver.Missing)
			err = nil
		case errors.Is(err, zk.ErrNoNode) && c.b.forgetNext(c.dir): // begin with the key's node
			err = nil
		case errors.Is(err, zk.ErrNoNode):
			err = c.b.makeParent(ctx, c.s, c.dir)
		case isInterruption(err):
			var found bool
			if found, err = c.recover(ctx); found {
				return c.arrived(ctx, prev)
			}
			if err != nil {
				c.createdLate("", zk.ErrConnectionClosed)
			}
		}
		if err != nil {
			return err
		}
	}
}

// errPrevGone says that the node of prev did not exist, and that nothing was done.
var errPrevGone = keyless.Errorf("zklock: the lease before was taken away")

// createIn creates the attempt's node below dir, and deletes an old one with it unless that is "".
func (c *claim) createIn(ctx context.Context, dir, old string) (node string, err error) {
	request := zk.CreateRequest{
		Path: dir + "/" + head(c.a.Mode, c.tag, c.id), Data: []byte(c.a.Instance), Acl: c.b.set.acl, Flags: zk.FlagEphemeralSequential,
	}
	c.isCreating(true)
	full, err := ask(ctx, c.s, "enter", func() (string, error) {
		if old != "" {
			return createInPlaceOf(c.s.conn, old, &request)
		}
		return c.s.conn.Create(request.Path, request.Data, request.Flags, request.Acl)
	}, c.createdLate)
	if !errors.Is(err, errLate) {
		c.isCreating(false)
	}
	return strings.TrimPrefix(full, c.dir+"/"), err
}

func (c *claim) isCreating(is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.creating = is
}

// arrived is called when the attempt has a node. One that is not in line is replaced.
func (c *claim) arrived(ctx context.Context, prev *driver.Prev[claim]) error {
	prev.Settle(driver.Removed)
	if err := c.moveOn(ctx); err != nil {
		return err
	}
	return prev.Wait(ctx)
}

func createInPlaceOf(conn *zk.Conn, old string, request *zk.CreateRequest) (string, error) {
	answers, err := conn.Multi(&zk.DeleteRequest{Path: old, Version: -1}, request)
	switch {
	case len(answers) == 2 && err == nil:
		return answers[1].String, nil
	case len(answers) > 0 && errors.Is(answers[0].Error, zk.ErrNoNode):
		return "", errPrevGone
	}
	return "", err
}

func (c *claim) created(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node, c.lost = node, false
}

// createdLate takes an answer after the caller has gone: what was created is deleted.
func (c *claim) createdLate(full string, err error) {
	c.mu.Lock()
	c.creating, c.lost = false, isInterruption(err)
	if err == nil {
		c.node = strings.TrimPrefix(full, c.dir+"/")
	}
	c.mu.Unlock()
	c.s.Lane.Retry()
}

// recover looks for the node after an interruption. On a new connection the server first catches up with the leader, which
// takes no more requests from the old one.
func (c *claim) recover(ctx context.Context) (found bool, err error) {
	for ; ; pause(ctx) {
		if err = c.s.await(ctx); err == nil {
			err = c.s.sync(ctx)
		}
		var v snapshot
		if err == nil {
			v, err = c.read(ctx, false)
		}
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return false, nil
		case err == nil && v.i >= 0:
			c.created(v.q[v.i].name)
			return true, nil
		case err == nil && v.worn.find(c.id) >= 0:
			c.created(v.worn[v.worn.find(c.id)].name)
			return true, nil
		case err == nil:
			return false, nil
		case !isInterruption(err) || ctx.Err() != nil:
			return false, err
		}
	}
}

// pause is the time between two tries. A server that gives up a connection answers with errors until it has closed it.
func pause(ctx context.Context) { parts.Pause(ctx, firstPause) }

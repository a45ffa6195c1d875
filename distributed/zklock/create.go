package zklock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
)

// create creates the attempt's node, and deletes that of prev with it, in one transaction. A create whose answer was lost has
// been carried out or not: the id in the name tells (rule Z1).
func (a *attempt) create(ctx context.Context, prev *prev) error {
	for {
		node, err := a.tryCreate(ctx, prev)
		switch {
		case err == nil:
			a.created(node)
			prev.settle(nil)
			return a.arrived(ctx, prev)
		case errors.Is(err, errPrevGone):
			prev.settle(zk.ErrNoNode)
		case errors.Is(err, zk.ErrNoNode) && a.b.forgetNext(a.dir): // begin with the key's node
			err = nil
		case errors.Is(err, zk.ErrNoNode):
			err = a.b.makeParent(ctx, a.s, a.dir)
		case isInterruption(err):
			var found bool
			if found, err = a.recover(ctx); found {
				prev.settle(nil)
				return a.arrived(ctx, prev)
			}
			if err != nil {
				a.createdLate("", zk.ErrConnectionClosed)
			}
		}
		if err != nil && !errors.Is(err, errPrevGone) {
			prev.giveUp()
			return err
		}
	}
}

// errPrevGone says that the node of prev did not exist, and that nothing was done.
var errPrevGone = errors.New("zklock: the lease before was taken away")

func (a *attempt) tryCreate(ctx context.Context, prev *prev) (node string, err error) {
	// prev's node is known now: when ctx ends, prev is given up while the call may be under way.
	return a.createIn(ctx, a.b.nextOf(a.dir), prev.node())
}

// createIn creates the attempt's node below dir, and deletes an old one with it unless that is "".
func (a *attempt) createIn(ctx context.Context, dir, old string) (node string, err error) {
	request := zk.CreateRequest{
		Path: dir + "/" + head(a.mode, a.tag, a.id), Data: []byte(a.instance), Acl: a.b.set.acl, Flags: zk.FlagEphemeralSequential,
	}
	full, err := ask(ctx, a.s, "enter", func() (string, error) {
		if old != "" {
			return createInPlaceOf(a.s.conn, old, &request)
		}
		return a.s.conn.Create(request.Path, request.Data, request.Flags, request.Acl)
	}, a.createdLate)
	return strings.TrimPrefix(full, a.dir+"/"), err
}

// arrived is called when the attempt has a node. One that is not in line is replaced.
func (a *attempt) arrived(ctx context.Context, prev *prev) error {
	if err := a.moveOn(ctx); err != nil {
		return err
	}
	return prev.wait(ctx)
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

func (a *attempt) created(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node = node
}

// createdLate takes an answer after the caller has gone: what was created is deleted.
func (a *attempt) createdLate(full string, err error) {
	switch {
	case err == nil:
		a.s.dead.add(&removal{path: full, tried: true})
	case isInterruption(err):
		a.s.dead.add(&removal{lost: a, tried: true})
	}
}

// recover looks for the node after an interruption. On a new connection the server first catches up with the leader, which
// takes no more requests from the old one.
func (a *attempt) recover(ctx context.Context) (found bool, err error) {
	for ; ; pause(ctx) {
		if err = a.s.await(ctx); err == nil {
			err = a.s.sync(ctx)
		}
		var v view
		if err == nil {
			v, err = a.read(ctx, false)
		}
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return false, nil
		case err == nil && v.i >= 0:
			a.created(v.q[v.i].name)
			return true, nil
		case err == nil && v.worn.find(a.id) >= 0:
			a.created(v.worn[v.worn.find(a.id)].name)
			return true, nil
		case err == nil:
			return false, nil
		case !isInterruption(err) || ctx.Err() != nil:
			return false, err
		}
	}
}

// pause is the time between two tries. A server that gives up a connection answers with errors until it has closed it.
func pause(ctx context.Context) {
	timer := time.NewTimer(firstPause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// prev is the lease that a request releases first. nil is none.
type prev struct {
	l    *lease
	mine bool // the request deletes it; otherwise its release is under way
}

// adopt returns the lease that an Enter releases first, no longer renewed. It ignores one that is not of this backend,
// instance and key, and one that was lost or released.
func (b *Backend) adopt(req distributed.Request) *prev {
	l, ok := distributed.As[*lease](req.Prev)
	if !ok || l.a.b != b || l.a.key != req.Key || l.a.instance != req.Instance || !l.Finish() {
		return nil
	}
	l.a.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.phase {
	case kept:
		l.held = true
		fallthrough
	case starting:
		l.phase = adopted
		return &prev{l, true}
	case released:
		return nil
	}
	return &prev{l, false}
}

// node is the path that the request is to delete, or "".
func (p *prev) node() string {
	if p == nil || !p.mine {
		return ""
	}
	return p.l.path
}

// settle notes what became of it, if the request was to delete it.
func (p *prev) settle(err error) {
	if p != nil && p.mine {
		p.mine = false
		p.l.settle(err)
	}
}

// giveUp has it deleted in the background, after a request that may have done it or not.
func (p *prev) giveUp() {
	if p != nil && p.mine {
		p.mine = false
		p.l.launch()
	}
}

// wait waits for a release that is under way, so that a look does not show the node.
func (p *prev) wait(ctx context.Context) error {
	if p == nil || p.mine {
		return nil
	}
	select {
	case <-p.l.done:
		return nil
	case <-p.l.refused:
		select { // it was carried out since
		case <-p.l.done:
			return nil
		default:
			return p.l.refusedBy()
		}
	case <-ctx.Done():
		return unanswered("release", ctx.Err())
	}
}

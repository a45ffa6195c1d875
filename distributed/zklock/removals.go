package zklock

import (
	"errors"
	"path"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
)

// removals deletes nodes of a session: of released, lost and abandoned leases and of places that were left. A node that
// stays would keep the lock as long as the session lives, so a deletion that was not answered is repeated until it is, or
// the session is over (rule Z5).
type removals struct {
	s *session

	mu      sync.Mutex
	queue   []*removal // guarded by mu
	workers int        // guarded by mu
	over    bool       // guarded by mu
}

type removal struct {
	path   string
	lost   *attempt    // whose node's name is not known, because the answer to its create was lost; nil: the path is
	claim  func() bool // asked before it is sent: false if it is not to be; nil: it is
	tried  bool        // an earlier try may have deleted it, so that a missing node is no loss
	denied func(error) // the server has refused it, and will be asked again. May be nil, and come more than once
	done   func(error) // nil: deleted; zk.ErrNoNode: was gone; errOver: so is the session. May be nil
}

// maxRemoving is how many deletions are under way at a time; more wait in line, on the one connection anyway.
const maxRemoving = 64

// add deletes the node in the background. done is called once, by any goroutine.
func (r *removals) add(one *removal) {
	if r.push(one) {
		r.drain()
	} else {
		one.finish(errOver)
	}
}

func (r *removals) push(one *removal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.queue = append(r.queue, one)
	}
	return !r.over
}

func (one *removal) finish(err error) {
	if one.done != nil {
		one.done(err)
	}
}

// drain starts to work on what is queued, if there is a connection; if not, it is called again when there is one.
func (r *removals) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.s.downAt.Load() || len(r.queue) == 0 || r.workers >= maxRemoving || !r.s.b.begin() {
		return
	}
	r.workers++
	go func() {
		defer r.s.b.tasks.Done()
		for r.next() {
		}
	}()
}

// next works on one. It reports false when there is no more to do for this worker.
func (r *removals) next() bool {
	r.mu.Lock()
	if len(r.queue) == 0 || r.s.downAt.Load() {
		r.workers--
		r.mu.Unlock()
		return false
	}
	one := r.queue[0]
	r.queue = r.queue[1:]
	r.mu.Unlock()
	if one.claim != nil && !one.claim() {
		return true
	}
	one.claim = nil
	err := r.delete(one)
	switch {
	case errors.Is(err, zk.ErrNoNode) && one.tried:
		one.finish(nil)
	case err == nil, errors.Is(err, zk.ErrNoNode):
		one.finish(err)
	default:
		one.tried = one.tried || isInterruption(err)
		if err = lacks("delete", path.Dir(one.path), err); one.denied != nil && errors.Is(err, distributed.ErrRefused) {
			one.denied(err)
		}
		return r.postpone(one)
	}
	return true
}

func (r *removals) delete(one *removal) error {
	if one.lost != nil {
		found, err := one.lost.recover(r.s.ctx)
		if err != nil || !found {
			return err
		}
		one.path, one.lost = one.lost.dir+"/"+one.lost.node, nil
	}
	sent := time.Now()
	err := r.s.conn.Delete(one.path, -1)
	r.s.b.observe(sent, err)
	return err
}

// postpone queues it again, for the next time that the connection comes back, or the next sync.
func (r *removals) postpone(one *removal) bool {
	if !r.push(one) {
		one.finish(errOver)
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workers--
	return false
}

// abort ends all when the session has.
func (r *removals) abort(err error) {
	r.mu.Lock()
	rest := r.queue
	r.queue, r.over = nil, true
	r.mu.Unlock()
	for _, one := range rest {
		one.finish(err)
	}
}

// idle reports that nothing is left to delete.
func (r *removals) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue) == 0 && r.workers == 0
}

// releaseAnswer translates the answer to a deletion into that to a release.
func releaseAnswer(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, errOver):
		return distributed.ErrLeaseLost
	}
	return err
}

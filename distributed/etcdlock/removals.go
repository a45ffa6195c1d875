package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/wllock/wllock/distributed"
)

// removals deletes keys of a session: of released, lost and abandoned leases and of places that were left. A key that stays
// would keep the lock as long as the session lives, so a deletion that was not answered is repeated until it is, or the session
// is over (rule E5). What is to be deleted while requests are under way shares the next one.
type removals struct {
	s *session

	mu      sync.Mutex
	queue   []*removal    // guarded by mu
	workers int           // guarded by mu
	over    bool          // guarded by mu
	resting chan struct{} // guarded by mu; closed when nothing is left to delete; nil: nobody waits for that
}

type removal struct {
	a     *attempt    // whose key it is
	claim func() bool // asked before it is sent: false if it is not to be; nil: it is
	tried bool        // an earlier try may have deleted it, so that a missing key is no loss
	tries int         // so far
	heard func(error) // a try was refused, and others follow: the user lacks a right, perhaps. May be nil
	done  func(error) // nil: deleted; errGone: was gone; errOver: so is the session. May be nil
}

// errGone says that the key to be deleted was not there.
var errGone = fmt.Errorf("etcdlock: the key is gone: %w", distributed.ErrLeaseLost)

const (
	// maxRemoving is how many requests are under way at a time.
	maxRemoving = 8
	// removedAtOnce is how many keys share a request: a server takes 128 by default.
	removedAtOnce = 60
	// quickTries are made one after the other; the next ones with the session's keepalives.
	quickTries = 3
)

// add deletes the key in the background. done is called once, by any goroutine. The caller may hold the mutex of the attempt.
func (r *removals) add(one *removal) {
	if r.push(one) {
		r.drain()
	} else {
		one.finish(errOver)
	}
}

// addHere deletes the key on the caller's goroutine if nothing else is to be deleted, which spares a lone caller two switches of
// goroutines. When ctx ends the deletion goes on in the background.
func (r *removals) addHere(ctx context.Context, one *removal) {
	if !r.takesHere() {
		r.add(one)
		return
	}
	r.deleteSome(ctx, []*removal{one})
	r.mu.Lock()
	r.workers--
	r.rested()
	r.mu.Unlock()
	r.drain() // what came meanwhile, or is to be repeated
}

// takesHere counts the caller as a worker, if nothing else is to be deleted.
func (r *removals) takesHere() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	free := !r.over && len(r.queue) == 0 && r.workers == 0
	if free {
		r.workers++
	}
	return free
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
	if errors.Is(err, errGone) && one.tried {
		err = nil
	}
	if one.done != nil {
		one.done(err)
	}
}

// drain starts to work on what is queued.
func (r *removals) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 || r.workers >= maxRemoving || !r.s.b.begin() {
		return
	}
	r.workers++
	go func() {
		defer r.s.b.tasks.Done()
		for r.next() {
		}
	}()
}

// next works on what is queued. It reports false when there is no more to do for this worker.
func (r *removals) next() bool {
	r.mu.Lock()
	n := min(len(r.queue), removedAtOnce)
	if n == 0 {
		r.workers--
		r.rested()
		r.mu.Unlock()
		return false
	}
	all := r.queue[:n:n]
	r.queue = r.queue[n:]
	r.mu.Unlock()
	if r.deleteSome(r.s.ctx, all) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workers--
	r.rested()
	return false
}

// deleteSome sends one request, or two. It reports false if the rest is to wait for the next keepalive.
func (r *removals) deleteSome(ctx context.Context, all []*removal) bool {
	var clean, dirty []*removal
	for _, one := range all {
		if one.claim != nil && !one.claim() {
			continue
		}
		one.claim = nil
		one.a.end() // of a lease that was lost: its watch ends
		if _, unsure := one.a.key(); unsure {
			dirty = append(dirty, one)
		} else {
			clean = append(clean, one)
		}
	}
	quick := r.delete(ctx, clean, false)
	return r.delete(ctx, dirty, true) && quick
}

// delete sends one request. It reports false if the rest is to wait for the next keepalive.
func (r *removals) delete(ctx context.Context, all []*removal, dirty bool) bool {
	if len(all) == 0 {
		return true
	}
	got, err := r.s.txn(ctx, "delete", r.request(all, dirty))
	if err != nil {
		return r.postpone(ctx, all, err)
	}
	if dirty {
		r.s.guarded(got.Header.Revision)
	}
	for i, one := range all {
		one.a.gone()
		if wasThere(got, i, len(all), dirty) {
			one.finish(nil)
		} else {
			one.finish(errGone)
		}
	}
	return true
}

// request deletes each key if it is the one that we know: by its create revision, or if that is not known by its value. The guard is
// written with those that may be created yet: then they will not be (rule E1).
func (r *removals) request(all []*removal, dirty bool) *pb.TxnRequest {
	req := new(pb.TxnRequest)
	for _, one := range all {
		ours := one.a.deletion()
		if dirty {
			ours.Compare = []*pb.Compare{ifValue(one.a.name, one.a.value)}
		}
		if len(all) == 1 && !dirty {
			return ours
		}
		req.Success = append(req.Success, opTxn(ours))
	}
	if dirty {
		req.Success = append(req.Success, opPut(r.s.guardKey(), "", r.s.lease()))
	}
	return req
}

// wasThere reports whether the key of the removal at i, of n, was deleted by the request.
func wasThere(got *pb.TxnResponse, i, n int, dirty bool) bool {
	if n == 1 && !dirty {
		return got.Succeeded
	}
	return got.Responses[i].GetResponseTxn().GetSucceeded()
}

// postpone queues them again, for the next try or the next keepalive. It reports whether to try soon.
func (r *removals) postpone(ctx context.Context, all []*removal, err error) bool {
	soon := isUnknown(err)
	for _, one := range all {
		one.tries++
		one.tried = one.tried || isUnknown(err)
		if one.heard != nil && errors.Is(err, distributed.ErrRefused) {
			one.heard(err)
		}
		soon = soon && one.tries < quickTries
		if errors.Is(err, errOver) || !r.push(one) {
			one.finish(errOver)
		}
	}
	if soon {
		pause(ctx, firstPause)
	}
	return soon && r.s.ctx.Err() == nil
}

// abort ends all when the session has.
func (r *removals) abort(err error) {
	r.mu.Lock()
	rest := r.queue
	r.queue, r.over = nil, true
	r.mu.Unlock()
	for _, one := range rest {
		one.a.end()
		one.finish(err)
	}
}

// rest returns a channel that is closed when nothing is left to delete.
func (r *removals) rest() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resting == nil {
		r.resting = make(chan struct{})
	}
	resting := r.resting
	r.rested()
	return resting
}

// rested is called when a worker stops. The caller holds mu.
func (r *removals) rested() {
	if len(r.queue) == 0 && r.workers == 0 && r.resting != nil {
		close(r.resting)
		r.resting = nil
	}
}

// releaseAnswer translates the answer to a deletion into that to a release.
func releaseAnswer(err error) error {
	if errors.Is(err, errGone) || errors.Is(err, errOver) {
		return distributed.ErrLeaseLost
	}
	return err
}

package etcdlock

import (
	"context"
	"errors"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/wllock/wllock/distributed"
)

// checkedAtOnce is how many attempts share a request, with two reads each: a server takes 128 by default.
const checkedAtOnce = 60

// check is called by the timer with those that are to look without an event: waiters every H, in case that a watch is silent
// (rule E3), and holders every T/3 while others wait, to learn that these have gone. Many share a request.
func (b *Backend) check(_ time.Time, due []*attempt) {
	sessions := map[*session][]*attempt{}
	for _, a := range due {
		if a.wantsCheck() {
			sessions[a.s] = append(sessions[a.s], a)
		}
	}
	for s, all := range sessions {
		for batch := range slices.Chunk(all, checkedAtOnce) {
			s.check(batch)
		}
	}
}

// wantsCheck reports whether the attempt is to be looked at. A holder that knows what there is sets its watch instead: most
// holds are too short to pay for one.
func (a *attempt) wantsCheck() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.state == waiting && a.follows == "":
		a.queueLook()
		return false
	case a.state == waiting:
		return true
	case a.state != leased || a.lease.isEnding():
		return false
	case a.counts:
		a.queueLook()
		return false
	case a.waiter != "" && len(a.watching) == 0:
		a.watchWaiter(a.waiter, a.lease.granted)
		a.planChecks()
		return false
	case a.lease.seen == 0 || len(a.watching) > 0:
		return true
	}
	a.watchRivals(a.lease.seen)
	a.planChecks()
	return false
}

// planChecks plans the next look of a holder that has a watch. That of a shared one does not tell of its own key. The caller
// holds mu.
func (a *attempt) planChecks() {
	if a.lease.isShared() || a.lease.seen == 0 {
		a.plan(distributed.RenewInterval(min(a.ttl, a.s.ttl())))
	}
}

// check asks for all with one request.
func (s *session) check(batch []*attempt) {
	req, asked := new(pb.TxnRequest), make([]string, len(batch))
	for i, a := range batch {
		var second *pb.RequestOp
		asked[i], second = a.question()
		req.Success = append(req.Success, opGet(a.name), second)
	}
	got, err := s.txn(s.ctx, "check", req)
	for i, a := range batch {
		if err != nil {
			a.unchecked()
			continue
		}
		mine, second := got.Responses[2*i].GetResponseRange(), got.Responses[2*i+1].GetResponseRange()
		a.checked(asked[i], got.Header.Revision, len(mine.Kvs) > 0, second)
	}
}

// question is what a check asks besides whether the key is there: of a waiter whether the key that it waits for is, of a
// holder who is behind it; then what is "".
func (a *attempt) question() (what string, op *pb.RequestOp) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == leased {
		return "", opAfter(a.rivals(a.lease.isShared()), a.revision)
	}
	return a.follows, opGet(a.follows)
}

// unchecked plans another look after one that was not answered.
func (a *attempt) unchecked() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == waiting || a.state == leased {
		a.plan(distributed.HeartbeatInterval(a.ttl))
	}
}

// checked takes the answer, if the attempt is still what it was.
func (a *attempt) checked(asked string, revision int64, exists bool, second *pb.RangeResponse) {
	a.mu.Lock()
	state, l := a.state, a.lease
	looks := state == waiting && asked != ""
	waiter, unsure := "", false
	switch {
	case looks && !exists:
		a.robbed()
	case looks:
		a.plan(distributed.HeartbeatInterval(a.ttl))
	case state == leased && asked == "" && exists:
		if waiter, unsure = a.waits(l.isShared(), second); unsure {
			a.queueLook()
		} else {
			a.seen(revision, waiter)
		}
	}
	a.mu.Unlock()
	switch {
	case state == leased && asked == "" && !exists:
		l.End()
	case state == leased && asked == "" && !unsure:
		l.SetContended(waiter != "")
	case looks && exists && a.hasGone(second):
		a.poke()
	}
}

// seen notes who waits behind a holder; "": nobody, and a watch will tell. The caller holds mu.
func (a *attempt) seen(revision int64, waiter string) {
	switch {
	case a.worthWatching(a.lease.isShared(), waiter):
		a.lease.seen = 0
		a.watchWaiter(waiter, revision)
	case waiter != "":
		a.lease.seen = 0
		a.unwatch()
	default:
		if a.waiter != "" {
			a.unwatch()
		}
		a.lease.seen = revision
		if len(a.watching) == 0 {
			a.watchRivals(revision)
		}
	}
	a.planChecks()
}

// count is the look of a holder that shares the lock when there are permits behind it: which of them wait?
func (a *attempt) count(ctx context.Context) {
	a.mu.Lock()
	a.counts = false
	a.mu.Unlock()
	v, err := a.lookAtAll(ctx)
	a.mu.Lock()
	l, held := a.lease, a.state == leased
	switch {
	case !held || errors.Is(err, errRobbed):
	case err != nil:
		a.plan(distributed.HeartbeatInterval(a.ttl))
	default:
		a.seen(v.revision, v.waiter)
	}
	a.mu.Unlock()
	switch {
	case !held:
	case errors.Is(err, errRobbed):
		l.End()
	case err == nil:
		l.SetContended(v.waiter != "")
	}
}

// hasGone reports that the key that the waiter waits for has gone, perhaps to come again behind it, or that its lease was
// downgraded.
func (a *attempt) hasGone(got *pb.RangeResponse) bool {
	if len(got.Kvs) == 0 {
		return true
	}
	mine, _ := a.key()
	return got.Kvs[0].CreateRevision > mine || a.shared() && isDowngraded(got.Kvs[0])
}

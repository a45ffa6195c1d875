package etcdlock

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/wllock/wllock/distributed"
)

// request is a key of a lock's queue: who holds it, and who waits for it, in the order of create revisions.
type request struct {
	name     string
	revision int64
	shared   bool // or it holds a lease that was downgraded
	limit    int  // of a permit; 0: none
}

// queueOf puts the requests for one lock into their order.
func queueOf(kvs []*mvccpb.KeyValue) []*mvccpb.KeyValue {
	q := slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool { return tagIn(string(kv.Key)) == "" })
	slices.SortFunc(q, func(x, y *mvccpb.KeyValue) int { return cmp.Compare(x.CreateRevision, y.CreateRevision) })
	return q
}

// requestsOf reads the queue of the lock with this prefix.
func requestsOf(dir string, kvs []*mvccpb.KeyValue) []request {
	kvs = queueOf(kvs)
	q := make([]request, len(kvs))
	for i, kv := range kvs {
		name := string(kv.Key)
		q[i] = request{name, kv.CreateRevision, isDowngraded(kv), 0}
		if letter := strings.TrimPrefix(name, dir); strings.HasPrefix(letter, letterOf(distributed.Shared, 0)) {
			q[i].shared = true
		} else if limit := limitIn(letter); limit > 0 {
			q[i].shared, q[i].limit = true, limit
		}
	}
	return q
}

// limitIn is the limit in the name of a permit, behind the prefix of its lock; 0: it is none.
func limitIn(name string) int {
	rest, is := strings.CutPrefix(name, permitLetter)
	text, _, _ := strings.Cut(rest, "/")
	limit, err := strconv.Atoi(text)
	if !is || err != nil || limit < 1 {
		return 0
	}
	return limit
}

// admitted is how many at the head of the queue hold the lock: one writer, or the readers and permits before the first writer, up
// to the first permit that has as many before it as its limit says. So what is before a request decides on it. As that can
// only become less, one that holds the lock goes on to; and whoever is admitted behind a permit saw that one admitted (rule E9).
func admitted(q []request) int {
	for i, r := range q {
		switch {
		case !r.shared && i == 0:
			return 1
		case !r.shared:
			return i
		case r.limit > 0 && i >= r.limit:
			return i
		}
	}
	return len(q)
}

// waitsFor returns which of the requests before the one at i have to be watched: it cannot be admitted before one of them has gone,
// or was downgraded. That is the last one, for an exclusive request. For a shared one it is the last writer; or, for a permit with the
// limit n that has too many before it, the n youngest of these: more than all but n have to go. So one that is released wakes n
// waiters at most, and one if the oldest goes first. Who is kept out by the limits of others alone waits for what the last of them
// does, and for that one to leave.
func waitsFor(q []request, i int) []request {
	if !q[i].shared {
		return q[i-1 : i]
	}
	for j := i - 1; j >= 0; j-- {
		if !q[j].shared {
			return q[j : j+1]
		}
	}
	for j := i; j >= 0; j-- {
		if limit := q[j].limit; limit > 0 && j >= limit {
			return q[j-limit : min(j+1, i)]
		}
	}
	return nil
}

// mostFollowed bounds how many keys a waiter watches one by one. With more it watches all that leave the lock.
const mostFollowed = 32

// fullView is the view of a whole queue, in which the request at i is the attempt's own. The caller holds mu, or the attempt is asking.
func (c *claim) fullView(revision int64, q []request, i int) *view {
	inside := admitted(q)
	v := &view{revision: revision, first: i < inside, waiter: c.waitsIn(q[inside:])}
	if !v.first {
		for _, r := range waitsFor(q, i) {
			v.before = append(v.before, r.name)
		}
		if len(v.before) > mostFollowed {
			v.before = []string{c.dir}
		}
	}
	return v
}

// waitsIn returns the first request of another instance among those that wait; "": there is none.
func (c *claim) waitsIn(waiting []request) string {
	for _, r := range waiting {
		if tagIn(r.name) != c.tag {
			return r.name
		}
	}
	return ""
}

// isNext reports whether the attempt, which has no key, would hold the lock as the last of this queue.
func (c *claim) isNext(q []request) bool {
	all := append(slices.Clip(q), request{shared: c.a.Shares(), limit: c.a.Limit})
	return admitted(all) == len(all)
}

// opAll reads the names of all requests for a lock.
func opAll(dir string) *pb.RequestOp {
	return opRange(&pb.RangeRequest{Key: []byte(dir), RangeEnd: endOf(dir)})
}

package etcdlock

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/parts"
)

// request is a key of a lock's queue: who holds it, and who waits for it, in the order of create revisions.
type request struct {
	name         string
	revision     int64
	driver.Asked // one that holds a lease which was downgraded is Shared
}

// admitted is how many at the head of the queue hold the lock.
func admitted(q []request) int { return driver.Admitted(q, false) }

// queueOf puts the requests for one lock into their order.
func queueOf(kvs []*mvccpb.KeyValue) []*mvccpb.KeyValue {
	q := slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool { return tagIn(string(kv.Key)) == "" })
	slices.SortFunc(q, func(x, y *mvccpb.KeyValue) int { return cmp.Compare(x.CreateRevision, y.CreateRevision) })
	return q
}

// sameFormat returns an error if there is a request of another version among those below the prefix of a lock.
func sameFormat(dir string, kvs []*mvccpb.KeyValue) error {
	for _, kv := range kvs {
		if n := formatIn(strings.TrimPrefix(string(kv.Key), dir)); n != 0 {
			return parts.OtherFormat("etcdlock", n, Format)
		}
	}
	return nil
}

// requestsOf reads the queue of the lock with this prefix.
func requestsOf(dir string, kvs []*mvccpb.KeyValue) []request {
	kvs = queueOf(kvs)
	q := make([]request, len(kvs))
	for i, kv := range kvs {
		name := string(kv.Key)
		q[i] = request{name, kv.CreateRevision, driver.Asked{Shared: isDowngraded(kv)}}
		if letter := strings.TrimPrefix(name, dir); strings.HasPrefix(letter, sharedLetter) {
			q[i].Shared = true
		} else if limit := limitIn(letter); limit > 0 {
			q[i].Shared, q[i].Limit = true, limit
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

// fullView is the view of a whole queue, in which the request at i is the attempt's own. The caller holds mu, or the attempt is asking.
func (c *claim) fullView(revision int64, q []request, i int) *view {
	inside := admitted(q)
	v := &view{revision: revision, first: i < inside, waiter: c.waitsIn(q[inside:])}
	if !v.first {
		for _, r := range driver.KeepsOut(q, i, false) {
			v.before = append(v.before, r.name)
		}
		if len(v.before) > driver.MostFollowed {
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
	all := append(slices.Clip(q), request{Asked: driver.Asked{Shared: c.a.Shares(), Limit: c.a.Limit}})
	return admitted(all) == len(all)
}

// opAll reads all requests for a lock.
func opAll(dir string) *pb.RequestOp {
	return opRead(&pb.RangeRequest{Key: []byte(dir), RangeEnd: endOf(dir)})
}

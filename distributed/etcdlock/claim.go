package etcdlock

import (
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/parts"
)

type attempt = driver.Attempt[claim]

// claim is the key of an attempt in etcd, from the first request to the last deletion; meanwhile no other request uses its name.
type claim struct {
	a     *attempt
	b     *Backend
	s     *session
	dir   string // the prefix of all requests for the lock
	name  string // the key of this one
	value string // of the key: see valueOf
	tag   string

	detached bool  // of a detached lease: its key has an etcd lease of its own
	own      int64 // that one; 0: it is not known, or the session's
	moved    bool  // the key has been, or may have been, that of another claim, too

	// Of a NoWait; only its Enter uses them.
	readsAll  bool   // an exclusive one has met somebody else's key
	refusedBy string // the first in line

	mu       sync.Mutex // guards all below
	dirty    bool       // a create was not answered, and may still be carried out: see session.guardKey
	revision int64      // at which the key was created; 0: it is not, as far as is known
	follows  string     // the key that it waits for; "": several
	watching []*watch   // of a waiter on these, of a holder on all that enter, or on its waiter
	waiter   string     // of a holder that shares the lock: the first that waits, if it is watched, or is to be
	ended    bool       // nothing is watched any more
	fired    bool       // an event says that a waiter has to look at the queue
	counts   bool       // of a holder: a permit has come, and only a look at the queue tells whether it waits
	seen     int64      // of a holder: the revision at which nobody was behind it, or waiter; 0: not known, or somebody was
	freed    bool       // the name is no longer its own
}

// init names the claim of an attempt of a session.
func (c *claim) init(a *attempt, s *session) {
	c.a, c.b, c.s, c.dir, c.tag, c.value = a, s.b, s, s.b.dirOf(a.Key), parts.Tag(a.Instance), valueOf(a.Instance)
	c.name = c.newName()
	a.Lane, a.Lasts = s.Lane, keptFor(s.ttl())
}

func (c *claim) newName() string {
	return c.b.names.take(c.dir + letterOf(c.a.Mode, c.a.Limit) + c.tag + "-")
}

// rivals is the prefix of the requests that a shared or an exclusive one may have to wait for, and that may wait for it: a reader only
// knows writers and permits.
func (c *claim) rivals(shared bool) string {
	if shared {
		return c.dir + rivalLetter
	}
	return c.dir
}

// key returns what is known of the key: the revision at which it was created, and whether it may be created yet.
func (c *claim) key() (revision int64, dirty bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision, c.dirty
}

// exists reports that there is a key, or that there may be one.
func (c *claim) exists() bool {
	revision, dirty := c.key()
	return revision != 0 || dirty
}

// unsure notes that a create may still be carried out.
func (c *claim) unsure() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dirty = true
}

// deletion deletes the key, if it is the one that we know: of one that was moved only the value tells.
func (c *claim) deletion() *pb.TxnRequest {
	revision, _ := c.key()
	req := &pb.TxnRequest{Compare: []*pb.Compare{ifCreated(c.name, revision)}, Success: []*pb.RequestOp{opDelete(c.name)}}
	if c.moved {
		beside := opDelete(besideOf(c.dir, c.value))
		req.Compare[0], req.Success, req.Failure = ifValue(c.name, c.value), append(req.Success, beside), []*pb.RequestOp{beside}
	}
	return req
}

// gone is called when etcd has answered that the key is not there, or no longer ours. By a second time the name may be another
// request's (rule E7).
func (c *claim) gone() {
	c.mu.Lock()
	free := !c.dirty && !c.freed
	c.freed = true
	c.mu.Unlock()
	if free {
		c.b.names.put(c.name)
	}
}

// follow watches the keys that the attempt waits for: their deletion, and for a shared one a downgrade. What happens between the
// look and the beginning of the watch makes it look once more.
func (c *claim) follow(v *view) {
	c.mu.Lock()
	defer c.mu.Unlock()
	followed := map[string]bool{}
	c.watching = slices.DeleteFunc(c.watching, func(w *watch) bool {
		key := string(w.req.Key)
		followed[key] = slices.Contains(v.before, key)
		if !followed[key] {
			c.b.watches.remove(w)
		}
		return !followed[key]
	})
	if c.follows = ""; len(v.before) == 1 && v.before[0] != c.dir {
		c.follows = v.before[0]
	}
	for _, key := range v.before {
		if !followed[key] {
			c.watch(v.revision, c.watchOf(key))
		}
	}
}

// watchOf watches a key, or all that leave the lock.
func (c *claim) watchOf(key string) *pb.WatchCreateRequest {
	req := &pb.WatchCreateRequest{Key: []byte(key)}
	if key == c.dir {
		req.RangeEnd = endOf(key)
	}
	if !c.a.Shares() || key == c.dir {
		req.Filters = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}
	}
	return req
}

// watchRivals has a holder learn who enters, and an exclusive one that its own key has been deleted. The caller holds mu.
func (c *claim) watchRivals(shared bool) {
	c.unwatch()
	rivals := c.rivals(shared)
	c.watch(c.seen, &pb.WatchCreateRequest{Key: []byte(rivals), RangeEnd: endOf(rivals)})
}

// worthWatching reports that a holder has its waiter watched: one that shares the lock, since others may join again when that has left. An
// exclusive one lets nobody join, and looks every T/3. A permit that waits may be admitted beside it, and tell no more.
func (c *claim) worthWatching(shared bool, waiter string) bool {
	return shared && waiter != "" && limitIn(strings.TrimPrefix(waiter, c.dir)) == 0
}

// watchWaiter has a holder learn that the first waiter has left. The caller holds mu.
func (c *claim) watchWaiter(name string, revision int64) {
	if name == c.waiter && len(c.watching) > 0 {
		return
	}
	c.unwatch()
	c.waiter = name
	c.watch(revision, &pb.WatchCreateRequest{Key: []byte(name), Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}})
}

// watch sets a watch. The caller holds mu.
func (c *claim) watch(seen int64, req *pb.WatchCreateRequest) {
	if !c.ended {
		c.watching = append(c.watching, c.b.watches.add(c, seen, req))
	}
}

// unwatch gives the watches up. The caller holds mu.
func (c *claim) unwatch() {
	for _, w := range c.watching {
		c.b.watches.remove(w)
	}
	c.watching, c.waiter = nil, ""
}

// end gives the watches up for good.
func (c *claim) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.unwatch()
}

// poke has a waiter look at the queue.
func (c *claim) poke() {
	c.mu.Lock()
	c.fired = true
	c.mu.Unlock()
	c.a.Poke()
}

// missed is called when something has changed in the cluster between what the owner of a watch has seen and the beginning of the
// watch. A waiter looks; a holder's look shares a request with those of others.
func (c *claim) missed(w *watch) {
	c.mu.Lock()
	mine := slices.Contains(c.watching, w)
	c.mu.Unlock()
	switch {
	case !mine:
	case c.a.Held():
		c.a.LookIn(0)
	default: // it waits, or is about to
		c.poke()
	}
}

// event is called with the events of a watch; none: the server has forgotten the revision at which it was to go on.
func (c *claim) event(w *watch, events []*mvccpb.Event) {
	waits := !c.a.Held() // or is about to
	c.mu.Lock()
	if !slices.Contains(c.watching, w) {
		c.mu.Unlock()
		return
	}
	gone := slices.ContainsFunc(events, func(e *mvccpb.Event) bool { return e.Type == mvccpb.DELETE })
	if len(events) == 0 || waits && gone && len(w.req.RangeEnd) == 0 { // it has nothing more to tell
		c.b.watches.remove(w)
		c.watching = slices.DeleteFunc(c.watching, func(one *watch) bool { return one == w })
	}
	c.mu.Unlock()
	if waits {
		c.poke()
	} else {
		c.rivalsCame(events)
	}
}

// rivalsCame takes the events of a holder's watch: somebody has entered, or the own key was deleted. Once it is known that somebody
// waits the watch has done its work.
func (c *claim) rivalsCame(events []*mvccpb.Event) {
	shared := c.a.Shares()
	contended, counts, left := false, false, false
	var waiter *mvccpb.KeyValue
	for _, e := range events {
		name := string(e.Kv.Key)
		switch {
		case e.Type == mvccpb.DELETE && name == c.name:
			c.a.Gone()
			return
		case e.Type == mvccpb.DELETE:
			left = left || c.isWaiter(name)
		case e.Type == mvccpb.PUT && e.Kv.Version == 1 && c.isOther(e.Kv):
			if shared && c.isPermit(e.Kv) {
				counts = true
			} else if strings.HasPrefix(name, c.rivals(shared)) && !contended {
				contended, waiter = true, e.Kv
			}
		}
	}
	c.mu.Lock()
	if contended || left || len(events) == 0 {
		c.unwatch()
		c.seen = 0
	}
	if contended && shared {
		c.watchWaiter(string(waiter.Key), waiter.ModRevision)
	}
	c.counts = c.counts || counts && !contended
	c.mu.Unlock()
	switch {
	case contended:
		c.a.Stands(driver.Standing{Kind: driver.Granted, Contended: true, Next: c.checkInterval()})
	case left, len(events) == 0:
		c.a.LookIn(0)
	case counts: // perhaps it waits; others may come with it
		c.a.LookIn(watchPause)
	}
}

func (c *claim) isWaiter(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return name == c.waiter
}

// checkInterval is how often a holder that others wait for looks whether they still do.
func (c *claim) checkInterval() time.Duration {
	return distributed.RenewInterval(min(c.a.TTL, c.s.ttl()))
}

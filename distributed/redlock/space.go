package redlock

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/keyless"
)

// realm is behind a system's space (see conn.SpaceOf) in the names of our helper keys and channels: those of redislock, which may be on the
// same server, never begin so.
const realm = "redlock:"

// prefixOf begins the helper keys and channels of a system.
func prefixOf(system string) string { return conn.SpaceOf(system) + realm }

// helper is the name of a helper key of a lock.
func helper(kind, key string) string { return prefixOf(conn.SystemOf(key)) + kind + key }

// markOf is where a server keeps since when it has the data of a system.
func markOf(system string) string { return prefixOf(system) + "node" }

// spaceOf begins all that an ACL rule for the helper keys and channels of this key, helper key or channel is to name.
func spaceOf(name string) string {
	if conn.IsHelper(name) {
		return conn.SpaceOf(conn.SystemIn(name))
	}
	return conn.SpaceOf(conn.SystemOf(name))
}

// checkKey refuses a key that is among the helper keys.
func checkKey(key string) error {
	if conn.IsHelper(key) {
		return keyless.Errorf("redlock: %w: the key begins with %q, as the helper keys do", distributed.ErrInvalidKey, conn.HelperPrefix)
	}
	return nil
}

// space is a system's part of the servers, as this process knows it: its helper keys and marks, and the channel on which this process hears
// of its locks. Users of other systems have no right to it, and what is learned here, how old a server is and which TTLs are in use, counts
// nowhere else (rule Q11).
type space struct {
	system string
	mark   string

	// met is the set of the servers that have answered to hello about this system. The first question about it to another server goes out
	// behind a hello, and each new connection says hello for all spaces that there are by then. So a server that was restarted is asked
	// no question about a system before a hello (rule Q5). For a connection that says nothing about the space was made before that was
	// there, and so before the hello that made its server met: if it still works, that hello came to the same process.
	met  atomic.Uint64
	deaf atomic.Uint64 // set of the servers that have refused the channel, and this is logged

	vouch   bool          // the Backend vouched before it was asked about any system, and this is the first; not written any more
	vouched atomic.Uint64 // set of the servers that were told so, or were restarted since

	mu    sync.Mutex
	heard inUse  // guarded by mu; the longest TTL that servers have named
	ages  []ages // guarded by mu; by server
}

// spaces are those that a Backend knows: as many as there are systems in the keys that it was asked for.
type spaces struct {
	mu  sync.Mutex
	all map[string]*space // guarded by mu; what is in it stays
	// vouch is guarded by mu: the next space that comes is vouched for, because Vouch was called when there was none.
	vouch bool
}

// space returns that of a system, of which the process hears from now on.
func (b *Backend) space(system string) *space {
	b.spaces.mu.Lock()
	defer b.spaces.mu.Unlock()
	in := b.spaces.all[system]
	if in != nil {
		return in
	}
	system = strings.Clone(system) // it is a part of a key
	in = &space{system: system, mark: markOf(system), ages: make([]ages, len(b.nodes)), vouch: b.spaces.vouch}
	b.spaces.vouch = false
	b.spaces.all[system] = in
	for _, n := range b.nodes {
		n.channels.Add(prefixOf(system) + b.process)
	}
	return in
}

// known returns all spaces.
func (b *Backend) known() []*space {
	b.spaces.mu.Lock()
	defer b.spaces.mu.Unlock()
	return slices.Collect(maps.Values(b.spaces.all))
}

// learn notes the longest TTL of leases, by a server (0: none), and returns the longest that we have heard of.
func (in *space) learn(longest time.Duration) time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.heard = in.heard.hear(time.Now(), min(longest, maxTTL))
	return in.heard.ttl
}

// trust returns how old the system's data on a server is for us, by what that says: see ages. sent is zero for a notice.
func (in *space) trust(index int, sent time.Time, age time.Duration) time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ages[index], age = in.ages[index].trust(sent, time.Now(), age)
	return age
}

// strangers are the systems in a batch that the server was not asked about yet.
func (n *node) strangers(batch []*ask) (all []*space) {
	for _, k := range batch {
		if k.in != nil && (k.in.met.Load()&(1<<n.index) == 0 || k.in.vouches(n)) && !slices.Contains(all, k.in) {
			all = append(all, k.in)
		}
	}
	return all
}

// vouches reports that a server is to hear that it is vouched for.
func (in *space) vouches(n *node) bool { return in.vouch && in.vouched.Load()&(1<<n.index) == 0 }

// hello is the question about a system that goes before all others. It is sent with its text, so nothing behind it in a pipeline is
// carried out before.
func (b *Backend) hello(n *node, in *space) *conn.Call {
	c := conn.NewCall(helloScript, []string{in.mark}, flag(in.vouches(n)), millis(b.longestTTL(in)))
	c.Args[0], c.Args[1] = "eval", helloScript.Text
	return c
}

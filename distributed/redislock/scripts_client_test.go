package redislock

import (
	"fmt"
	"slices"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/identity"
)

// simClient is one instance in a process of its own. It asks, waits, holds and releases by the rules of the Go side, but one
// request at a time, and what becomes of each request is drawn.
type simClient struct {
	process  *sender
	instance string
	ttl      time.Duration
	window   time.Duration
	last     uint64        // attempt
	arrived  uint64        // the latest attempt of which a script has been run
	now      *simAttempt   // nil: it wants nothing
	out      *simRequest   // without a reply yet
	tasks    []*simRequest // leaves, repeated until there is a reply
	beatAt   time.Time     // when the next heartbeat is due, once the sequence drains
	wants    bool          // is to be served before the sequence ends
}

// simState is what a simulated client believes of its attempt.
type simState uint8

const (
	asking simState = iota
	waiting
	claiming
	leased
	ended
)

// simAttempt is one enter and what came of it.
type simAttempt struct {
	c        *simClient
	number   uint64
	text, id string // the number and the random digits; what names it as a holder
	mode     distributed.Mode
	limit    int // 0: none
	nowait   bool
	most     int // how many others may be queued; 0: any number
	ttl      time.Duration
	window   time.Duration
	prev     *simAttempt
	wire     wireAttempt
	entering *conn.Call
	enters   int  // copies of that: two of one that may be repeated
	parted   bool // a release was sent
	named    bool // by an enter, as prev
	doubted  bool // it names prev, of which a release was sent

	// What its client believes.
	state simState
	asked bool      // for a downgrade: it lets in readers only
	since time.Time // see driver.Attempt
	early *grant
	first uint64    // fence
	until time.Time // it holds the lock until then; zero: it does not

	// What has happened at the server.
	arrived    bool  // a script of it
	has        bool  // it holds the lock, or is listed as a reader
	gone       bool  // it held the lock until it expired or a foreigner deleted it
	deleted    bool  // a foreigner did: its client does not know
	released   int64 // when it was released while it held the lock; 0: never
	byEnter    bool  // by the enter that named it as prev
	leftAPlace bool
	ended      int64 // when a leave was run first; 0: never
}

// queuedTTL is the TTL that a place names: a grant to it gets half of that.
func (a *simAttempt) queuedTTL() int64 { return max(a.ttl, 2*a.window).Milliseconds() }

// shared reports that the lease may be a shared one.
func (a *simAttempt) shared() bool { return a.mode == distributed.Shared || a.asked }

// simID is an attempt's id: the same each time, and not in the order of the numbers.
func simID(number uint64) identity.Attempt {
	return identity.Attempt{Number: number, Random: number * 0x9e3779b97f4a7c15}
}

// channel is where the client hears of a lock.
func (c *simClient) channel(key string) string {
	return channelOf(conn.SystemOf(key), c.process.process)
}

func (c *simClient) attempt(key string, now time.Time, mode distributed.Mode, limit int, nowait bool, most int, prev *simAttempt) *simAttempt {
	c.last++
	a := &simAttempt{
		c: c, number: c.last, text: simID(c.last).String(), mode: mode, limit: limit, nowait: nowait, most: most, ttl: c.ttl, window: c.window, prev: prev,
		since: now,
	}
	a.id = c.process.process + ":" + a.text + ":" + c.instance
	a.wire.init(c.process, c.process.process, simID(a.number), key, c.instance, mode, c.ttl, c.window)
	if nowait || most > 0 {
		a.wire.queueMost(most)
	}
	if limit > 0 {
		a.wire.limited(limit)
	}
	named := any(noPrev)
	if prev != nil {
		prev.until, prev.named = time.Time{}, true
		named = prev.wire.prev(prev.mode, prev.first)
	}
	a.doubted = prev != nil && prev.parted
	a.entering = a.wire.enter(named, a.doubted)
	return a
}

// simRequest is a request on its way.
type simRequest struct {
	a     *simAttempt
	other *simAttempt // the second lease of a renewall
	call  *conn.Call
	sent  time.Time
	by    time.Time // a leave is not repeated after that
}

func (r *simRequest) kind() string { return r.call.Script.Name }

// ttl is the one that the request names.
func (r *simRequest) ttl() int64 {
	if r.kind() == enterScript.Name || r.kind() == heartbeatScript.Name {
		return r.a.queuedTTL()
	}
	return r.a.ttl.Milliseconds()
}

func (r *simRequest) String() string {
	text := fmt.Sprintf("%s %s %s", r.kind(), r.a.id, map[distributed.Mode]string{distributed.Shared: "shared"}[r.a.mode])
	if r.a.limit > 0 {
		text += fmt.Sprint(" limit ", r.a.limit)
	}
	if r.kind() == enterScript.Name && r.a.nowait {
		text += " nowait"
	}
	if r.kind() == enterScript.Name && r.a.most > 0 {
		text += fmt.Sprint(" most ", r.a.most)
	}
	if r.kind() == enterScript.Name && r.a.prev != nil {
		text += " prev " + r.a.prev.text
	}
	return text
}

// tick ends what the client knows has expired.
func (c *simClient) tick(now time.Time) {
	if a := c.now; a != nil && a.state == leased && !a.until.After(now) {
		c.end()
	}
	for len(c.tasks) > 0 && now.After(c.tasks[0].by) {
		c.tasks = c.tasks[1:]
	}
}

// end is what a client does that has lost what it had.
func (c *simClient) end() {
	c.now.until, c.now.state = time.Time{}, ended
	c.now, c.out = nil, nil
}

// leave gives the attempt up; the request is repeated until it is answered.
func (c *simClient) leave(a *simAttempt, now time.Time) {
	a.until = time.Time{}
	r := &simRequest{a: a, call: a.wire.leave(), by: now.Add(a.ttl)}
	if a.enters == 1 && a.state == leased && !a.shared() && c.process.gap == 0 && a.number%4 == 0 { // else it is known that somebody waits
		r.call = a.wire.release(a.first)
	}
	a.state = ended
	c.tasks = append(c.tasks, r)
}

// adopt returns the lease that the next enter is to release. nil: there is none, or its leave is under way.
func (c *simClient) adopt() *simAttempt {
	switch r := c.tasks[0]; {
	case r.a.parted: // the client goes on with that as well
		return r.a
	case r.a.first > 0 && !r.a.named && r.sent.IsZero():
		c.tasks = c.tasks[1:]
		return r.a
	default:
		return nil
	}
}

// giveUp is what a client does that waits no longer for its reply.
func (c *simClient) giveUp(now time.Time) {
	a := c.out.a
	if c.out.kind() == enterScript.Name {
		c.leave(a, now)
		if a.prev != nil {
			c.leave(a.prev, now)
		}
		c.now = nil
	}
	c.out = nil
}

// receive takes a grant that was pushed or found by a heartbeat.
func (c *simClient) receive(g grant, now time.Time) {
	a := c.now
	if g.since.IsZero() {
		g.since = a.since
	}
	switch a.state {
	case asking:
		a.early = &g
	case waiting:
		c.take(g, now)
	}
}

// take begins a lease, or claims it first.
func (c *simClient) take(g grant, now time.Time) {
	a := c.now
	a.first = g.fence
	a.wire.space.see(g.fence + g.count - 1)
	c.out = nil
	if until := distributed.Validity(g.since, a.window); distributed.Left(now, until) >= a.window/4 {
		a.state, a.until = leased, until
	} else {
		a.state = claiming
	}
}

// replied is what the client makes of a reply to its request.
func (c *simClient) replied(r *simRequest, reply string, now time.Time) {
	if reply == otherReply {
		r.call, r.a.parted = r.a.wire.leave(), false
		return
	}
	if r.kind() == leaveScript.Name || r.kind() == releaseScript.Name {
		c.tasks = slices.DeleteFunc(c.tasks, func(t *simRequest) bool { return t == r })
		return
	}
	if c.out != r {
		return
	}
	c.out = nil
	switch r.kind() {
	case enterScript.Name, heartbeatScript.Name:
		c.stands(readStanding(reply, r.sent), r, now)
	case renewScript.Name, renewOneScript.Name:
		c.renewed(readRenew(reply).held, r)
	case renewAllScript.Name:
		c.renewed(readRenewAll(reply, 0).held, r)
	case downgradeScript.Name:
		c.renewed(readRefill(reply).held, r)
	case refillScript.Name:
		if got := readRefill(reply); got.held {
			r.a.wire.space.see(got.grant.fence + got.grant.count - 1)
		} else {
			c.end()
		}
	}
}

func (c *simClient) stands(s standing, r *simRequest, now time.Time) {
	switch {
	case s.kind == hasLease:
		c.take(s.grant, now)
	case s.kind != hasPlace:
		c.end()
	case r.a.early != nil: // it came before the answer to the enter
		r.a.state = waiting
		c.receive(*r.a.early, now)
	default:
		r.a.state, r.a.since = waiting, r.sent
	}
}

func (c *simClient) renewed(held bool, r *simRequest) {
	if !held {
		c.end()
		return
	}
	until := distributed.Validity(r.sent, r.a.ttl)
	if r.a.state == claiming || until.After(r.a.until) {
		r.a.state, r.a.until = leased, until
	}
}

package redislock

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
)

// sequence is a random course of scripts on one key, and what is known of it. All that is random stands in its steps, and any
// of these can be left out: this is how a failure is cut down to what it needs.
type sequence struct {
	plan
	key       string
	start     time.Time // see scriptServer.play
	now       time.Time
	at        int  // the next step
	cut       bool // the last script has skipped as many dead waiters, or done as much of something else, as it may
	view      keysView
	since     int64  // see silentSince
	reply     string // the last one
	stretched string // the generation of readers whose lock was stretched
	clients   [clientCount]*simClient
	made      int           // clients so far
	all       []*simAttempt // of all clients
	late      []*simRequest // delayed copies
	top       string        // the last fence known to be reserved

	drainUntil time.Time // zero: it does not drain yet
	turn       int

	failure   string
	tolerated map[*toleration]bool
	trace     func(format string, args ...any) // nil: nobody reads it
}

// plan is what a sequence is made of.
type plan struct {
	ttls   [clientCount]time.Duration
	trips  [clientCount]time.Duration // round trips to the server, as each client has measured them
	gap    time.Duration
	single bool
	few    bool // see fewOnly
	permit bool // most attempts are for permits
	steps  []step
	index  uint64
}

// step draws what is done. What that means depends on what there is to do.
type step struct {
	wait                  int // rounds, before the step
	who, what, fate, luck byte
}

const (
	clientCount = 3
	// maxSteps is few, because a failure needs few, and more sequences find more.
	minSteps, maxSteps = 8, 32
	// oldest is how late a copy of a request may arrive: less than an attempt that has ended is remembered.
	oldest = 8 * time.Second
	// foreignTTL is the TTL of a foreigner's lock.
	foreignTTL = 700 * time.Millisecond
)

var simTTLs = []time.Duration{600 * time.Millisecond, 3 * time.Second, 6 * time.Second}

func draw(seed, index uint64) plan {
	r := rand.New(rand.NewPCG(seed, index))
	p := plan{index: index, single: r.IntN(2) == 0, steps: make([]step, minSteps+r.IntN(maxSteps-minSteps))}
	if r.IntN(5) == 0 {
		p.gap = 200 * time.Millisecond
	}
	p.few, p.permit = r.IntN(2) == 0, r.IntN(2) == 0
	mixed, ttl := r.IntN(3) == 0, simTTLs[r.IntN(len(simTTLs))]
	for i := range p.ttls {
		if p.ttls[i] = ttl; mixed {
			p.ttls[i] = simTTLs[r.IntN(len(simTTLs))]
		}
		if r.IntN(4) == 0 { // a slow network: a longer claim window
			p.trips[i] = time.Duration(r.Int64N(int64(p.ttls[i] / 4)))
		}
	}
	for i := range p.steps {
		bits := r.Uint64()
		p.steps[i] = step{drawWait(r), byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)}
	}
	return p
}

// drawWait is mostly short, often nothing; half a lease, and more than two, are seen as well.
func drawWait(r *rand.Rand) int {
	switch n := r.IntN(20); {
	case n < 5:
		return 1
	case n < 12:
		return r.IntN(24)
	case n < 19:
		return r.IntN(280)
	default:
		return r.IntN(maxWait)
	}
}

// sequences numbers their keys.
var sequences atomic.Uint64

func newSequence(p plan, trace func(string, ...any)) *sequence {
	s := &sequence{plan: p, key: fmt.Sprint("k", sequences.Add(1)), trace: trace, tolerated: make(map[*toleration]bool), view: keysView{
		lockEnds: noKey, stateEnds: noKey, queueEnds: noKey, waitersEnds: noKey, readersEnds: noKey,
	}}
	for i := range s.clients {
		s.connect(i)
	}
	return s
}

// connect makes the client at i: the last one is in a process that hears nothing.
func (s *sequence) connect(i int) {
	kind := liveProcess
	if i == clientCount-1 {
		kind = "deaf"
	}
	s.made++
	name := kind + strconv.Itoa(s.made) + "." + s.key
	s.clients[i] = &simClient{process: &sender{process: name, gap: s.gap}, instance: "i" + strconv.Itoa(s.made), ttl: s.ttls[i]}
	s.clients[i].window = network{rtt: s.trips[i], cold: 3 * s.trips[i]}.claimWindow(s.ttls[i])
	s.clients[i].process.single.Store(s.single)
}

// execution is what the server is to do next.
type execution struct {
	commands [][]any // of a foreigner
	request  *simRequest
	client   *simClient // nil: nobody reads the reply
	repeat   bool       // of the one before, at the same time
	luck     byte
}

// next returns what is to be done now, and in how many rounds more is.
func (s *sequence) next() (todo []execution, wait int) {
	if s.at == len(s.steps) {
		return s.drain(), s.drainWait()
	}
	st := s.steps[s.at]
	s.at++
	if s.at < len(s.steps) {
		wait = s.steps[s.at].wait
	}
	return s.do(st), wait
}

func (s *sequence) do(st step) []execution {
	view := s.view.at(s.now.UnixMilli())
	i := int(st.who) % clientCount
	c := s.clients[i]
	c.tick(s.now)
	switch {
	case len(s.late) > 0 && st.what < 40:
		return s.arriveLate(st)
	case view.isForeign() && st.what < 100, !view.isFree() && st.what == 255:
		return []execution{{commands: [][]any{{"DEL", s.key}}}}
	case view.isFree() && st.what >= 250:
		return s.lockAsForeigner(st)
	case st.what == 249 || s.few && st.what > 240: // the dead are to be many
		s.crash(i)
		return nil
	case st.what == 240 && !view.isFree() && !view.isForeign():
		return []execution{{commands: [][]any{stretch(s.key, time.Duration(st.luck)*100*time.Millisecond)}}}
	case (st.what == 241 || st.what == 242) && !view.isFree() && !view.isForeign():
		return s.breakIt(view, st)
	case len(c.tasks) > 0 && st.luck%4 > 0:
		return s.deliver(c, c.tasks[0], st)
	case c.out == nil:
		s.begin(c, st)
	}
	if c.out == nil {
		return nil
	}
	return s.deliver(c, c.out, st)
}

func (s *sequence) arriveLate(st step) []execution {
	i := int(st.luck) % len(s.late)
	r := s.late[i]
	s.late = slices.Delete(s.late, i, i+1)
	if s.now.Sub(r.sent) > oldest {
		return nil
	}
	return []execution{{request: r, luck: st.fate}}
}

func (s *sequence) lockAsForeigner(st step) []execution {
	switch st.luck % 4 {
	case 0: // of another type
		return []execution{{commands: [][]any{{"HSET", s.key, "f", "v"}, {"PEXPIRE", s.key, foreignTTL.Milliseconds()}}}}
	case 1: // no TTL
		return []execution{{commands: [][]any{{"SET", s.key, "foreign", "NX"}}}}
	default:
		return []execution{{commands: [][]any{{"SET", s.key, "foreign", "NX", "PX", foreignTTL.Milliseconds()}}}}
	}
}

// breakIt has somebody who is no client end the lock by force, as it is now or as it is not any more.
func (s *sequence) breakIt(view *keysView, st step) []execution {
	s.made++
	c := &simClient{process: &sender{process: "breaker" + strconv.Itoa(s.made), gap: s.gap}, instance: breaker}
	c.process.single.Store(s.single)
	found := view.lock
	if view.isShared() {
		found = prefix + "s:" + view.value()
	}
	if st.luck%8 == 7 { // others have it by now
		found = found[:len(found)-1] + string('0'+(found[len(found)-1]-'0'+1)%10)
	}
	a := &simAttempt{c: c, number: 1, text: simID(1).String(), ttl: conn.OrphanTTL, window: distributed.ClaimWindow(conn.OrphanTTL)}
	a.id = c.process.process + ":" + a.text + ":" + breaker
	return []execution{{request: &simRequest{a: a, call: c.process.breaks(s.key, simID(1), found, "{}"), sent: s.now}, luck: st.fate}}
}

// crash replaces a client by another one, in a process of its own.
func (s *sequence) crash(i int) {
	s.note("%s crashes", s.clients[i].instance)
	for _, a := range s.all {
		if a.c == s.clients[i] {
			a.until = time.Time{}
		}
	}
	s.connect(i)
}

// begin has a client without a request under way make one.
func (s *sequence) begin(c *simClient, st step) {
	a := c.now
	switch {
	case a == nil && len(c.tasks) > 0 && st.luck%2 == 0:
		s.enter(c, st, c.adopt())
	case a == nil:
		s.enter(c, st, nil)
	case a.state == waiting && st.what%10 == 0:
		c.now = nil
		c.leave(a, s.now)
	case a.state == waiting:
		c.out = &simRequest{a: a, call: a.wire.heartbeat()}
	case a.state == claiming:
		c.out = &simRequest{a: a, call: a.wire.renew()}
	case a.state == leased:
		s.useLease(c, st)
	}
}

func (s *sequence) useLease(c *simClient, st step) {
	a := c.now
	switch n := st.what % 10; {
	case a.mode == distributed.Exclusive && n < 7 && (a.asked && n < 3 || st.luck%8 == 5):
		a.asked = true
		c.out = &simRequest{a: a, call: a.wire.downgrade()}
	case a.asked && n < 4:
		c.out = &simRequest{a: a, call: a.wire.renew()}
	case n < 3 && st.luck%2 == 0 && s.single && a.mode == distributed.Exclusive:
		s.renewTwo(c)
	case n < 3 && st.luck%2 == 0 && a.mode == distributed.Exclusive:
		c.out = &simRequest{a: a, call: a.wire.renewOne(a.mode)}
	case n < 3:
		c.out = &simRequest{a: a, call: a.wire.renew()}
	case n < 4 && (a.mode == distributed.Exclusive || a.limit > 0):
		c.out = &simRequest{a: a, call: a.wire.refill()}
	case n < 7:
		c.now = nil
		c.leave(a, s.now)
	default:
		s.enter(c, st, a)
	}
}

// renewTwo renews the client's lease, and an attempt of another client that may hold nothing, with one script.
func (s *sequence) renewTwo(c *simClient) {
	r := &simRequest{a: c.now, other: c.now}
	for _, a := range s.all {
		if a.c != c && a.ttl == c.ttl && !a.shared() {
			r.other = a
		}
	}
	r.call = renewAll(c.ttl, 2, func(i int) *wireAttempt { return &[]*simAttempt{r.a, r.other}[i].wire })
	c.out = r
}

func (s *sequence) enter(c *simClient, st step, prev *simAttempt) {
	mode := distributed.Exclusive
	if st.luck%4 == 1 || s.permit && st.luck%4 > 1 {
		mode = distributed.Shared
	}
	limit := 0
	if s.permit && mode == distributed.Shared {
		limit = int("\x02\x02\x02\x01\x01\x03\x02\x00"[st.luck/32])
	}
	nowait, most := st.luck/4%8 == 0, 0
	if st.luck/4%8 == 2 {
		most = 1 + int(st.luck/32)%3
	}
	a := c.attempt(s.key, s.now, mode, limit, nowait, most, prev)
	c.now, c.out = a, &simRequest{a: a, call: a.entering}
	s.all = append(s.all, a)
}

// deliver sends a request, and draws what becomes of it.
func (s *sequence) deliver(c *simClient, r *simRequest, st step) []execution {
	r.sent = s.now
	copied := *r
	once := execution{request: r, client: c, luck: st.luck}
	answered := st.fate < 160
	switch {
	case r.kind() == enterScript.Name && answered:
		r.a.enters++
	case r.kind() == enterScript.Name:
		r.a.enters += 2
	case r.kind() == releaseScript.Name:
		if r.a.parted = true; st.fate >= 185 {
			r.call = r.a.wire.leave() // which repeats it
		}
	}
	switch f := st.fate; {
	case f < 160:
		return []execution{once}
	case f < 185:
		return []execution{once, {request: &copied, repeat: true, luck: st.luck}}
	case f < 205: // the reply is lost
		return []execution{{request: &copied, luck: st.luck}}
	case f < 215: // the request is
		return nil
	case f < 235:
		s.late = append(s.late, &copied)
		return nil
	case r == c.out:
		if f%2 == 0 {
			s.late = append(s.late, &copied)
		}
		s.note("%v is given up", r)
		c.giveUp(s.now)
		return nil
	default:
		return nil
	}
}

// drain has everybody served, a client after the other: nothing is lost any more.
func (s *sequence) drain() []execution {
	if s.drainUntil.IsZero() {
		s.beginDrain()
	}
	if s.view.at(s.now.UnixMilli()).isForeign() {
		return []execution{{commands: [][]any{{"DEL", s.key}}}}
	}
	s.turn++
	c := s.clients[s.turn%clientCount]
	c.tick(s.now)
	r := s.pending(c)
	if r == nil {
		return nil
	}
	r.sent = s.now
	return []execution{{request: r, client: c}}
}

func (s *sequence) beginDrain() {
	s.note("drain")
	s.late = nil
	s.drainUntil = s.now.Add(s.drainBound())
	for _, c := range s.clients {
		c.wants = c.now != nil && c.now.state != leased && !c.now.nowait
	}
}

// drainBound is how long it may take until everybody is served: a lease whose holder has crashed expires, then each waiter
// that has crashed may be granted one, which it does not claim.
func (s *sequence) drainBound() time.Duration {
	longest, crashed := max(s.ttls[0], s.ttls[1], s.ttls[2]), s.made-clientCount
	return time.Duration(4+crashed) * longest
}

// pending is what a client does while the sequence drains.
func (s *sequence) pending(c *simClient) *simRequest {
	if a := c.now; a != nil && a.state == leased {
		c.now, c.out, c.wants = nil, nil, false
		c.leave(a, s.now)
	}
	switch {
	case len(c.tasks) > 0:
		return c.tasks[0]
	case c.out != nil:
	case c.now == nil && c.wants:
		s.enter(c, step{luck: 4}, nil) // exclusive, and waits
	case c.now == nil:
		return nil
	case c.now.state == waiting && s.now.Before(c.beatAt):
		return nil
	default:
		c.beatAt = s.now.Add(distributed.HeartbeatInterval(c.ttl))
		s.begin(c, step{what: 1})
	}
	return c.out
}

// done reports that everybody has been served, or fails the sequence.
func (s *sequence) done() bool {
	if s.failure != "" {
		return true
	}
	if s.drainUntil.IsZero() {
		return false
	}
	for _, c := range s.clients {
		if c.now != nil || c.wants || len(c.tasks) > 0 {
			s.failIf(s.now.After(s.drainUntil), "%s has not been served when all should be", c.instance)
			return s.failure != ""
		}
	}
	return true
}

func (s *sequence) drainWait() int {
	shortest := min(s.ttls[0], s.ttls[1], s.ttls[2])
	return max(1, int(distributed.HeartbeatInterval(shortest)/clientCount/(tick/ticking)))
}

// fail notes what is wrong, the first time.
func (s *sequence) fail(format string, args ...any) {
	if s.failure == "" {
		s.failure = fmt.Sprintf(format, args...)
		s.note("WRONG: %s", s.failure)
	}
}

// failIf is fail if something is wrong. What it prints has to be safe in any case.
func (s *sequence) failIf(wrong bool, format string, args ...any) {
	if wrong {
		s.fail(format, args...)
	}
}

func (s *sequence) note(format string, args ...any) {
	if s.trace != nil {
		s.trace("%8d ms  %s", s.now.Sub(s.start).Milliseconds(), fmt.Sprintf(format, args...))
	}
}

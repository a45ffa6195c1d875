package redislock

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/identity"
)

// Here stands every request that goes over the wire; reply.go has what comes back, and lua/ is the other side of it.

// Where the arguments stand, behind the keys.
const (
	tokenArg    = conn.HeadLen + keyCount // ARGV 1
	modeArg     = tokenArg + 2            // ARGV 3
	settingsArg = tokenArg + 5            // ARGV 6
)

// sender is this process as its requests name it.
type sender struct {
	process string        // our id in tokens and in the channels' names
	gap     time.Duration // for which a released lock is left free for foreigners
	single  atomic.Bool   // not a cluster
	spaces  spaces
	args    atomic.Pointer[scriptArgs]
}

// anyNumber is the last word of ARGV 6: any number may be queued.
const anyNumber = "-"

// modeExclusive is ARGV 3 of what is exclusive, unless a gap for foreigners follows it.
const modeExclusive = "x"

// scriptArgs are the arguments that follow from a TTL, put into interfaces only once.
type scriptArgs struct {
	ttl               time.Duration
	single            bool
	exclusive         any // mode
	window            time.Duration
	fresh, keep, past any
	mark              string // what an exclusive lock's value has between token and fence: T, as a place names it
	markArg           any
	settings          any
	refill            any // settings with the larger block
	queue, nowait     any // settings of a place, see argsFor; where none is wanted
	queued            any // T in ms, as a place names it
}

// argsFor returns the arguments for a TTL and a claim window. A process usually has one of each, so the last ones are kept.
//
// The script that grants the lock to a waiter, which may be another process's, gives it half of the TTL that its place
// names. So a place names twice its window, for which it is given more time between its heartbeats, too.
func (s *sender) argsFor(ttl, window time.Duration) *scriptArgs {
	single := s.single.Load()
	if t := s.args.Load(); t != nil && t.ttl == ttl && t.window == window && t.single == single {
		return t
	}
	ms, fresh, gap, counts := ttl.Milliseconds(), window.Milliseconds(), s.gap.Milliseconds(), 0
	if single {
		counts = 1
	}
	past := max(10_000, 2*ms)
	settings := func(ms int64, block int, most string) any {
		return fmt.Sprint(ms, counts, block, gap, past) + " " + most
	}
	queued := max(ms, 2*fresh)
	mark := strconv.FormatInt(queued, 10) + ":"
	t := &scriptArgs{
		ttl: ttl, window: window, single: single, mark: mark, markArg: mark, exclusive: modeExclusive, fresh: fresh, keep: max(60_000, 4*ms), past: past,
		settings: settings(ms, firstBlock, anyNumber), refill: settings(ms, laterBlock, anyNumber),
		queued: queued, queue: settings(queued, firstBlock, anyNumber), nowait: settings(queued, firstBlock, "0"),
	}
	if gap > 0 {
		t.exclusive = "xg"
	}
	s.args.Store(t)
	return t
}

func (t *scriptArgs) mode(m distributed.Mode) any {
	if m == distributed.Shared {
		return "s"
	}
	return t.exclusive
}

// wireAttempt is an attempt as its requests name it. Each request carries (instance, attempt), so that a repeat has one
// effect (rule R1), and the full token of what the attempt owns (rule R2). It is not copied: its requests point to its texts.
type wireAttempt struct {
	space          *space
	fixed          *scriptArgs
	keys           [keyCount]string
	token, attempt string
	mode, queue    any // ARGV 3; ARGV 6 of enter
}

// init names the attempt with that id of a process. The instance is escaped: see instanceName.
func (w *wireAttempt) init(s *sender, process string, id identity.Attempt, key, instance string, mode distributed.Mode, ttl, window time.Duration) {
	var digits [40]byte
	attempt := id.Append(digits[:0])
	w.token = prefix + "x:" + process + ":" + string(attempt) + ":" + instance + ":"
	start := len(prefix) + len("x:") + len(process) + len(":")
	w.attempt = w.token[start : start+len(attempt)]
	w.space, w.fixed, w.keys = s.space(key), s.argsFor(ttl, window), keysOf(key, instance)
	w.mode, w.queue = w.fixed.mode(mode), w.fixed.queue
}

// instanceName is the instance as it stands in tokens and messages, where colons and blanks separate.
func instanceName(instance string) string { return url.QueryEscape(instance) }

// instanceOf is the instance of a name in tokens and messages, without what keyed has added.
func instanceOf(name string) string {
	instance, err := url.QueryUnescape(name)
	if err != nil {
		return name
	}
	instance, _, _ = strings.Cut(instance, keyedMark)
	return instance
}

// isOf reports that the attempt is of the instance with this name.
func (w *wireAttempt) isOf(instance string) bool {
	rest, ok := strings.CutSuffix(w.token[:len(w.token)-1], instance)
	return ok && strings.HasSuffix(rest, ":")
}

// queueMost lets enter take a place behind fewer than n others, and none if n is 0. The other scripts ignore it.
func (w *wireAttempt) queueMost(n int) {
	if w.queue = w.fixed.nowait; n > 0 {
		w.queue = strings.TrimSuffix(w.fixed.queue.(string), anyNumber) + strconv.Itoa(n)
	}
}

// limited makes a shared attempt one for a permit (rule R18).
func (w *wireAttempt) limited(limit int) {
	w.mode = "s" + strconv.Itoa(min(limit, math.MaxInt32)) // the scripts write it with %d
}

// enter asks for the lock, and releases prev first. parted: a release of prev may be under way that notes nothing.
func (w *wireAttempt) enter(prev any, parted bool) *conn.Call {
	if parted {
		return w.call(enterScript, w.queue, prev, w.fixed.markArg, 1)
	}
	return w.call(enterScript, w.queue, prev, w.fixed.markArg)
}

func (w *wireAttempt) heartbeat() *conn.Call { return w.call(heartbeatScript, w.fixed.queue) }

func (w *wireAttempt) renew() *conn.Call { return w.call(renewScript, w.fixed.settings) }

// claim is the first renew, which replicas have to acknowledge.
func (w *wireAttempt) claim() *conn.Call {
	c := w.call(claimScript, w.fixed.settings)
	c.Acked = true
	return c
}

// renewOne is renew by a call with one key. Among readers it renews the reader alone: if it is held, renewShared is next.
func (w *wireAttempt) renewOne(mode distributed.Mode) *conn.Call {
	ttl := w.fixed.ttl.Milliseconds()
	if mode == distributed.Exclusive {
		return conn.NewCall(renewOneScript, w.keys[:1], w.token, ttl)
	}
	id := strings.TrimSuffix(strings.TrimPrefix(w.token, prefix+"x:"), ":")
	return conn.NewCall(renewOneScript, []string{w.keys[readersKey]}, id, ttl, w.fixed.keep)
}

// renewShared extends the lock that readers hold. It comes after renewOne: a lock must not outlast its readers (rule R14).
func (w *wireAttempt) renewShared() *conn.Call {
	return conn.NewCall(renewOneScript, w.keys[:1], prefix+"s:", w.fixed.ttl.Milliseconds())
}

func (w *wireAttempt) refill() *conn.Call { return w.call(refillScript, w.fixed.refill) }

// downgrade makes the attempt's exclusive lease a shared one. Its reply is one to refill.
func (w *wireAttempt) downgrade() *conn.Call { return w.call(downgradeScript, w.fixed.settings) }

// leave releases the attempt's lease, or leaves its place.
func (w *wireAttempt) leave() *conn.Call { return w.call(leaveScript, w.fixed.settings, w.fixed.past) }

// release is leave for a lease with this first fence: see release.lua.
func (w *wireAttempt) release(fence uint64) *conn.Call {
	r := &struct { // one allocation
		conn.Call
		value string
		room  [conn.HeadLen + 3]any
	}{value: w.value(fence)}
	r.Script, r.Args = releaseScript, r.room[:]
	releaseScript.Head(r.Args, 2)
	r.Args[conn.HeadLen], r.Args[conn.HeadLen+1], r.Args[conn.HeadLen+2] = &w.keys[0], &w.keys[1], &r.value
	return &r.Call
}

// call is a request with ARGV 1 to 7 of lua/common.lua, of which the last is as of now, and then what only this script has.
func (w *wireAttempt) call(s *conn.Script, settings any, more ...any) *conn.Call {
	r := &struct { // one allocation
		conn.Call
		seen uint64
		room [settingsArg + 5]any
	}{seen: w.space.seen.Load()}
	r.Script, r.Args = s, r.room[:conn.HeadLen]
	s.Head(r.Args, keyCount)
	for i := range w.keys {
		r.Args = append(r.Args, &w.keys[i]) // a pointer, because a string in an interface is an allocation
	}
	r.Args = append(r.Args, &w.token, &w.attempt, w.mode, w.fixed.fresh, w.fixed.keep, settings, fenceArg(&r.seen))
	r.Args = append(r.Args, more...)
	return &r.Call
}

// noPrev is enter's ARGV 8 without a lease to release.
const noPrev = "wllock:none:"

// prev is enter's ARGV 8 for the lease of this attempt, whose value has this fence.
func (w *wireAttempt) prev(mode distributed.Mode, fence uint64) any {
	if mode == distributed.Shared {
		return prefix + "s:" + strings.TrimPrefix(w.token, prefix+"x:")
	}
	return w.value(fence)
}

// value is what the lock says of an exclusive lease with this first fence.
func (w *wireAttempt) value(fence uint64) string {
	var digits [20]byte
	return w.token + w.fixed.mark + string(appendFence(digits[:0], fence))
}

// renewAll renews n exclusive leases of one TTL; of returns the attempt of each. All its arguments are in interfaces
// already.
func renewAll(ttl time.Duration, n int, of func(i int) *wireAttempt) *conn.Call {
	args := make([]any, conn.HeadLen+3*n+1)
	renewAllScript.Head(args, 2*n)
	locks := args[conn.HeadLen:]
	queues, rest := locks[n:], locks[2*n:]
	rest[0] = ttl.Milliseconds()
	for i := range n {
		w := of(i)
		locks[i], queues[i], rest[i+1] = &w.keys[0], &w.keys[queueKey], &w.token
	}
	return &conn.Call{Script: renewAllScript, Args: args}
}

// heartbeatAll is heartbeat for n places of one TTL and window, that wait for exclusive locks; of returns the attempt of each.
func heartbeatAll(n int, of func(i int) *wireAttempt) *conn.Call {
	args := make([]any, conn.HeadLen+6*n+2)
	beatAllScript.Head(args, 4*n)
	keys, names := args[conn.HeadLen:], args[conn.HeadLen+4*n:]
	names[0], names[1] = of(0).fixed.queued, of(0).fixed.keep
	for i := range n {
		w := of(i)
		copy(keys[4*i:], []any{&w.keys[0], &w.keys[1], &w.keys[queueKey], &w.keys[queueKey+1]})
		names[2*i+2], names[2*i+3] = &w.token, &w.attempt
	}
	return &conn.Call{Script: beatAllScript, Args: args}
}

// probe tries every command on a key of its own that begins with start, on the server that has the tag, and the system's channel.
func (s *sender) probe(start, tag, system string) *conn.Call {
	return conn.NewCall(probeScript, []string{start + "{" + tag + "}:" + s.process}, channelOf(system, s.process))
}

// longestTTL notes a TTL in use, to be remembered for keep, and asks for the longest.
func longestTTL(system string, ttl, keep time.Duration) *conn.Call {
	return conn.NewCall(ttlScript, []string{conn.SpaceOf(system) + "ttl"}, ttl.Milliseconds(), keep.Milliseconds())
}

func readLongestTTL(reply string) time.Duration {
	w := words(reply)
	return time.Duration(w.number()) * time.Millisecond
}

const fenceDigits = 19

// fenceArg is a fence as an argument of the scripts.
func fenceArg(fence *uint64) any {
	if *fence >= 1e18 {
		return fence // has its digits anyway, and is written straight into the connection's buffer
	}
	return string(appendFence(nil, *fence))
}

// appendFence writes a fence the way the scripts compare them: as 19 digits (rule R9).
func appendFence(b []byte, fence uint64) []byte {
	for least := uint64(1e18); fence < least && least > 1; least /= 10 {
		b = append(b, '0')
	}
	return strconv.AppendUint(b, fence, 10)
}

// parseFence reads what a script wrote; anything else is 0, which no store accepts after a fence.
func parseFence(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}

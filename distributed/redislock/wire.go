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
	queue, nowait     any // settings of a place, see argsFor; with the wish to take none
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
	settings := func(ms int64, block, nowait int) any { return fmt.Sprint(ms, counts, block, gap, past, nowait) }
	queued := max(ms, 2*fresh)
	mark := strconv.FormatInt(queued, 10) + ":"
	t := &scriptArgs{
		ttl: ttl, window: window, single: single, mark: mark, markArg: mark, exclusive: "x", fresh: fresh, keep: max(60_000, 4*ms), past: past,
		settings: settings(ms, firstBlock, 0), refill: settings(ms, laterBlock, 0),
		queue: settings(queued, firstBlock, 0), nowait: settings(queued, firstBlock, 1),
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
// effect (rule R1), and the full token of what the attempt owns (rule R2).
type wireAttempt struct {
	space *space
	fixed *scriptArgs
	args  []any // what all its requests begin with: head, keys, ARGV 1 to 6 of lua/common.lua; as in enter
}

// attempt returns an attempt with that id. The instance is escaped: see instanceName.
func (s *sender) attempt(id identity.Attempt, key, instance string, mode distributed.Mode, ttl, window time.Duration) wireAttempt {
	texts := &struct {
		keys           [keyCount]string
		token, attempt string
	}{keys: keysOf(key, instance)}
	var digits [40]byte
	attempt := id.Append(digits[:0])
	texts.token = prefix + "x:" + s.process + ":" + string(attempt) + ":" + instance + ":"
	start := len(prefix) + len("x:") + len(s.process) + len(":")
	texts.attempt = texts.token[start : start+len(attempt)]
	args := make([]any, conn.HeadLen, conn.HeadLen+keyCount+6+3) // enter adds three
	enterScript.Head(args, keyCount)
	for i := range texts.keys {
		args = append(args, &texts.keys[i]) // a pointer, because a string in an interface is an allocation
	}
	t := s.argsFor(ttl, window)
	return wireAttempt{s.space(key), t, append(args, &texts.token, &texts.attempt, t.mode(mode), t.fresh, t.keep, t.queue)}
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
func (w wireAttempt) isOf(instance string) bool {
	token := *w.args[tokenArg].(*string)
	rest, ok := strings.CutSuffix(token[:len(token)-1], instance)
	return ok && strings.HasSuffix(rest, ":")
}

// noWait makes enter take no place. The other scripts ignore it.
func (w wireAttempt) noWait() { w.args[settingsArg] = w.fixed.nowait }

// limited makes a shared attempt one for a permit (rule R18).
func (w wireAttempt) limited(limit int) {
	w.args[modeArg] = "s" + strconv.Itoa(min(limit, math.MaxInt32)) // the scripts write it with %d
}

// enter asks for the lock, and releases prev first. It is called once per attempt, which leaves the room behind args to
// it.
func (w wireAttempt) enter(prev any) *conn.Call {
	return &conn.Call{Script: enterScript, Args: append(w.args, fenceArg(w.space.seen.Load()), prev, w.fixed.markArg)}
}

func (w wireAttempt) heartbeat() *conn.Call {
	c := w.call(heartbeatScript)
	c.Args[settingsArg] = w.fixed.queue
	return c
}

func (w wireAttempt) renew() *conn.Call { return w.call(renewScript) }

// renewOne is renew by a call with one key. Among readers it renews the reader alone: if it is held, renewShared is next.
func (w wireAttempt) renewOne(mode distributed.Mode) *conn.Call {
	lock, token, ttl := w.args[conn.HeadLen].(*string), *w.args[tokenArg].(*string), w.fixed.ttl.Milliseconds()
	if mode == distributed.Exclusive {
		return conn.NewCall(renewOneScript, []string{*lock}, token, ttl)
	}
	readers, id := w.args[conn.HeadLen+readersKey].(*string), strings.TrimSuffix(strings.TrimPrefix(token, prefix+"x:"), ":")
	return conn.NewCall(renewOneScript, []string{*readers}, id, ttl, w.fixed.keep)
}

// renewShared extends the lock that readers hold. It comes after renewOne: a lock must not outlast its readers (rule R14).
func (w wireAttempt) renewShared() *conn.Call {
	lock := w.args[conn.HeadLen].(*string)
	return conn.NewCall(renewOneScript, []string{*lock}, prefix+"s:", w.fixed.ttl.Milliseconds())
}

func (w wireAttempt) refill() *conn.Call {
	c := w.call(refillScript)
	c.Args[settingsArg] = w.fixed.refill
	return c
}

// downgrade makes the attempt's exclusive lease a shared one. Its reply is one to refill.
func (w wireAttempt) downgrade() *conn.Call { return w.call(downgradeScript) }

// leave releases the attempt's lease, or leaves its place.
func (w wireAttempt) leave() *conn.Call { return w.call(leaveScript, w.fixed.past) }

// call has the settings of a lease, and adds ARGV 7, which is as of now, and what only this script has.
func (w wireAttempt) call(s *conn.Script, more ...any) *conn.Call {
	args := make([]any, 0, len(w.args)+1+len(more))
	args = append(args, w.args...)
	s.Head(args, keyCount)
	args[settingsArg] = w.fixed.settings
	args = append(args, fenceArg(w.space.seen.Load()))
	return &conn.Call{Script: s, Args: append(args, more...)}
}

// noPrev is enter's ARGV 8 without a lease to release.
const noPrev = "wllock:none:"

// prev is enter's ARGV 8 for the lease of this attempt, whose value has this fence.
func (w wireAttempt) prev(mode distributed.Mode, fence uint64) any {
	token := *w.args[tokenArg].(*string)
	if mode == distributed.Shared {
		return prefix + "s:" + strings.TrimPrefix(token, prefix+"x:")
	}
	var digits [20]byte
	return token + w.fixed.mark + string(appendFence(digits[:0], fence))
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
		locks[i], queues[i], rest[i+1] = w.args[conn.HeadLen], w.args[conn.HeadLen+queueKey], w.args[tokenArg]
	}
	return &conn.Call{Script: renewAllScript, Args: args}
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
func fenceArg(fence uint64) any {
	if fence >= 1e18 {
		return fence // has its digits anyway, and is written straight into the connection's buffer
	}
	return string(appendFence(nil, fence))
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

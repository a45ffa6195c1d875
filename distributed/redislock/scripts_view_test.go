package redislock

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/identity"
)

// viewScript returns the keys of a lock and when they expire, a line each, and then what was published since the last view.
var viewScript = conn.NewScript("view", `
local function ends(k) return redis.call('PEXPIRETIME', k) end
local values, pushed = redis.call('MGET', KEYS[1], KEYS[2]), redis.call('LRANGE', 'pushed', 0, -1)
if #pushed > 0 then redis.call('DEL', 'pushed') end
return table.concat({
  values[1] or '', ends(KEYS[1]), values[2] or '', ends(KEYS[2]),
  table.concat(redis.call('ZRANGE', KEYS[3], 0, -1), ' '), ends(KEYS[3]),
  table.concat(redis.call('HGETALL', KEYS[4]), '|'), ends(KEYS[4]),
  table.concat(redis.call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES'), ' '), ends(KEYS[5]), unpack(pushed)
}, '\n')`)

// stretch makes a lock last longer, as a server's clock does that is set back.
func stretch(key string, by time.Duration) []any {
	const text = `
for _, key in ipairs(KEYS) do
  local left = redis.call('PTTL', key)
  if left >= 0 then redis.call('PEXPIRE', key, left + ARGV[1]) end
end
local readers = redis.call('ZRANGE', KEYS[2], 0, -1)
for _, reader in ipairs(readers) do redis.call('ZINCRBY', KEYS[2], ARGV[1], reader) end
return ''`
	keys := keysOf(key, "")
	return []any{"EVAL", text, 2, key, keys[readersKey], by.Milliseconds()}
}

// noKey and noTTL are in place of the time when a key expires.
const noKey, noTTL = -2, -1

// keysView is what the keys of a lock say. Times are ms since 1970.
type keysView struct {
	lock     string // "" for a foreigner's key of another type
	lockEnds int64

	fence     string // the last one reserved, 19 digits
	queued    bool
	told      bool // the holder knows that somebody was refused
	free      int64
	last      int64 // the last script
	since     int64 // silence counts from then
	stateEnds int64

	queue                  []queuedPlace // in order
	queueEnds, waitersEnds int64

	readers     []listedReader
	readersEnds int64

	torn string // how queue and waiters disagree

	pushed []pushedMessage // since the last view
}

type pushedMessage struct{ channel, text string }

type queuedPlace struct {
	instance, attempt, process, mode string
	limit                            int // 0: none
	ttl, beat                        int64
}

func (p queuedPlace) number() uint64 {
	a, _ := identity.ReadAttempt(p.attempt)
	return a.Number
}

type listedReader struct {
	id   string
	ends int64
}

func readView(text string) keysView {
	f := strings.Split(text, "\n")
	v := keysView{
		lock: f[0], lockEnds: ms(f[1]), stateEnds: ms(f[3]), queueEnds: ms(f[5]), waitersEnds: ms(f[7]), readersEnds: ms(f[9]),
	}
	v.readState(f[2])
	v.readQueue(strings.Fields(f[4]), strings.Split(f[6], "|"))
	readers := strings.Fields(f[8])
	for i := 0; i < len(readers); i += 2 {
		v.readers = append(v.readers, listedReader{readers[i], ms(readers[i+1])})
	}
	for _, line := range f[10:] {
		channel, text, _ := strings.Cut(line, " ")
		v.pushed = append(v.pushed, pushedMessage{channel, text})
	}
	return v
}

func (v *keysView) readState(text string) {
	w := words(text)
	v.fence = w.next()
	if len(v.fence) == fenceDigits-3 {
		v.fence += "999"
	}
	v.told = w == "0"
	v.queued, v.free, v.last, v.since = w.flag(), w.number(), w.number(), w.number()
}

func (v *keysView) readQueue(members, waiters []string) {
	if len(members) != len(waiters)/2 {
		v.torn = "queue and waiters differ in length"
	}
	for _, m := range members {
		p := queuedPlace{instance: m}
		for i := 0; i+1 < len(waiters); i += 2 {
			if waiters[i] == m {
				w := words(waiters[i+1])
				p.attempt, p.process, p.mode, p.ttl, p.beat = w.next(), w.next(), w.next(), w.number(), w.number()
				if len(p.mode) > 1 {
					p.limit = int(ms(p.mode[1:]))
					p.mode = p.mode[:1]
				}
			}
		}
		if p.attempt == "" {
			v.torn = m + " is queued and no waiter"
		}
		v.queue = append(v.queue, p)
	}
}

func ms(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return n }

// at is the view at that time: some keys have expired.
func (v keysView) at(now int64) *keysView {
	gone := func(ends *int64) bool {
		if *ends >= 0 && now > *ends {
			*ends = noKey
		}
		return *ends == noKey
	}
	if gone(&v.lockEnds) {
		v.lock = ""
	}
	if gone(&v.stateEnds) {
		v.fence, v.queued, v.told, v.free, v.last, v.since = "", false, false, 0, 0, 0
	}
	if gone(&v.queueEnds) {
		v.queue = nil
	}
	if gone(&v.readersEnds) {
		v.readers = nil
	}
	gone(&v.waitersEnds)
	return &v
}

func (v *keysView) isShared() bool { return strings.HasPrefix(v.lock, prefix+"s:") }

// room reports that one more reader has room there by its limit, at that time.
func (v *keysView) room(limit int, now int64) bool {
	return limit == 0 || v.living(now) < limit
}

// living is how many readers there are whose time has not passed.
func (v *keysView) living(now int64) (n int) {
	for _, r := range v.readers {
		if r.ends > now {
			n++
		}
	}
	return n
}

// isForeign reports that the lock's key is no lock of ours.
func (v *keysView) isForeign() bool { return v.lockEnds != noKey && !strings.HasPrefix(v.lock, prefix) }

func (v *keysView) isFree() bool { return v.lockEnds == noKey }

// holders are the ids of those that hold the lock, and may be listed as readers though their time has passed.
func (v *keysView) holders() []string {
	if v.isShared() {
		ids := make([]string, len(v.readers))
		for i, r := range v.readers {
			ids[i] = r.id
		}
		return ids
	}
	if rest, ok := strings.CutPrefix(v.lock, prefix+"x:"); ok {
		fields := strings.Split(rest, ":")
		return []string{strings.Join(fields[:3], ":")}
	}
	return nil
}

// ends is when the lease of this id expires; noKey: it has none.
func (v *keysView) ends(id string) int64 {
	if v.isShared() {
		for _, r := range v.readers {
			if r.id == id {
				return r.ends
			}
		}
		return noKey
	}
	if strings.HasPrefix(v.lock, prefix+"x:"+id+":") {
		return v.lockEnds
	}
	return noKey
}

// longest is T of the owner, or the longest of the readers, as the lock says.
func (v *keysView) longest() int64 {
	fields := strings.Split(v.lock, ":")
	if len(fields) < 3 {
		return 0
	}
	return ms(fields[len(fields)-2])
}

// isStretched reports that the lock lasts longer than any lease, since the clock has been set back.
func (v *keysView) isStretched(now int64) bool {
	return strings.HasPrefix(v.lock, prefix) && v.lockEnds > now+v.longest()
}

// value is the fence in the value of an exclusive lock.
func (v *keysView) value() string { return v.lock[strings.LastIndexByte(v.lock, ':')+1:] }

// rank is the place of an attempt in the queue, or -1.
func (v *keysView) rank(instance, attempt string) int {
	return slices.IndexFunc(v.queue, func(p queuedPlace) bool { return p.instance == instance && p.attempt == attempt })
}

// equal reports that two views show the same, apart from the last fence if that may differ.
func (v *keysView) equal(o *keysView, fences bool) bool {
	return v.lock == o.lock && v.lockEnds == o.lockEnds && (!fences || v.fence == o.fence) && v.queued == o.queued && v.told == o.told &&
		v.free == o.free && v.stateEnds == o.stateEnds && v.queueEnds == o.queueEnds && v.readersEnds == o.readersEnds &&
		slices.Equal(v.queue, o.queue) && slices.Equal(v.readers, o.readers)
}

package redislock

import (
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/identity"
)

// Here stands all that comes over the wire: every reply and every message.

// words are those of a reply or message, separated by one blank.
type words string

func (w *words) next() string {
	word, rest, _ := strings.Cut(string(*w), " ")
	*w = words(rest)
	return word
}

func (w *words) number() int64 {
	n, _ := strconv.ParseInt(w.next(), 10, 64)
	return n
}

func (w *words) flag() bool { return w.next() == "1" }

// holder reads an instance, and how many readers there are beside it; "": it is not known.
func (w *words) holder() string {
	name, more := w.next(), w.number()
	if bytes, foreign := strings.CutPrefix(name, "*"); foreign {
		return foreigner(bytes)
	}
	if name == "" || name == "-" {
		return ""
	}
	return distributed.HolderText(instanceOf(name), int(more))
}

// foreigner names whoever has put something else into the lock's key: a lock of another library, or a cache under the same name.
func foreigner(bytes string) string {
	if format, other := strings.CutPrefix(bytes, "f"); other {
		return "another version of wllock, in format " + format
	}
	bytes, stays := strings.CutSuffix(bytes, "!")
	what := "a value that is no string"
	if bytes != "" {
		what = "a string of " + bytes + " bytes"
	}
	if stays {
		what += " that never expires"
	}
	return "a client that is not wllock, with " + what
}

// grant says that an attempt owns the lock.
type grant struct {
	fence     uint64 // the first of a block
	count     uint64 // how many are in it
	contended bool
	since     time.Time // its claim window began at this time or later; zero: not known
}

const (
	// firstBlock fences come with a grant: those of a microsecond. The unused rest of a block is not returned, so
	// blocks that are taken often must be small, otherwise the fences run ahead of the clock: a microsecond for each
	// lease is less than any server takes to grant it.
	firstBlock = 1000
	// laterBlock fences come with a refill: 65 microseconds, for a lease that used half a block to pass the lock on
	// inside its process. That takes longer than 65 microseconds, and the lease then refills every 65 ms at most.
	laterBlock = 1 << 16
	// fenceAhead is how far a grant in a message may be ahead of our clock: a larger fence would refuse all later holders until the clock is
	// there. Where the server's clock is ahead by more, each message costs a heartbeat.
	fenceAhead = 5 * time.Minute
)

// plausible reports that a grant in a message may be one that the server has made, to a process that knows of a fence before it
// (0: it does not).
func (g grant) plausible(after uint64, now time.Time) bool {
	return g.count > 0 && g.count <= firstBlock && g.fence > after && g.fence <= uint64(now.Add(fenceAhead).UnixNano())
}

func (w *words) grant() grant {
	return grant{fence: parseFence(w.next()), count: uint64(w.number()), contended: w.flag()}
}

// position is a place in the queue.
type position struct {
	rank    int64         // how many instances are before ours
	rest    time.Duration // until the lock expires or may be taken; negative: neither is known
	foreign bool          // a foreigner has the lock, and sends no message when it unlocks
	holder  string        // has it, as far as we know
}

// standing is what an attempt has at the server, as enter and heartbeat reply.
type standing struct {
	kind     standingKind
	grant    grant    // of hasLease
	position position // of hasPlace
	holder   string   // of heldByOther
	prevLost bool     // the lease to release first had been lost
}

// standingKind is the first word of a reply. heartbeat has one more, "gone": the place is lost, as after any other word.
type standingKind string

const (
	hasLease    standingKind = "lease"
	hasPlace    standingKind = "place"
	heldByOther standingKind = "held" // and no place was taken
	outdated    standingKind = "old"  // the server knows a later attempt of the instance; nothing was done
	isNotHeld   standingKind = "lost" // transfer: there is no such lease
)

// readStanding reads the reply to a request that was sent then.
func readStanding(reply string, sent time.Time) (s standing) {
	reply, s.prevLost = strings.CutPrefix(reply, "lost ")
	if len(reply) == fenceDigits-3 { // the short "lease": a microsecond, for its fences 000 to 999
		if us, err := strconv.ParseUint(reply, 10, 64); err == nil {
			s.kind, s.grant = hasLease, grant{fence: us * 1000, count: 1000, since: sent}
			return s
		}
	}
	w := words(reply)
	switch s.kind = standingKind(w.next()); s.kind {
	case hasLease:
		s.grant = w.grant()
		s.grant.since = sent
	case hasPlace:
		s.position = position{w.number(), time.Duration(w.number()) * time.Millisecond, w.flag(), w.holder()}
	case heldByOther:
		w.next()
		s.holder = w.holder()
	}
	return s
}

// renewReply is the reply to renew, or to renewAll for one lease.
type renewReply struct{ held, contended bool }

func readRenew(reply string) renewReply {
	w := words(reply)
	return renewReply{w.next() == "held", w.flag()}
}

func readRenewAll(reply string, i int) renewReply {
	return renewReply{reply[i] == 'h' || reply[i] == 'w', reply[i] == 'w'}
}

// refillReply is the reply to refill.
type refillReply struct {
	held  bool
	grant grant // a further block
}

func readRefill(reply string) refillReply {
	w := words(reply)
	return refillReply{w.next() == "fences", w.grant()}
}

// otherReply is the reply to release that has done nothing.
const otherReply = "other"

// readLeave reads the reply to leave, or to release; parted: an earlier release may have been carried out.
func readLeave(reply string, parted bool) driver.Outcome {
	switch {
	case reply == "lost" && !parted: // the attempt held nothing
		return driver.Lost
	case reply == "lost", reply == "over": // a later attempt of its instance has been here, and may have released the lease, unless it was lost before
		return driver.Missing
	default:
		return driver.Removed
	}
}

// refusedCommand is one line of the reply to probe.
type refusedCommand struct{ command, why string }

func readProbe(reply string) (all []refusedCommand) {
	for line := range strings.Lines(reply) {
		command, why, _ := strings.Cut(strings.TrimSpace(line), " ")
		all = append(all, refusedCommand{command, why})
	}
	return all
}

// message is what one process publishes to another:
//
//	g <mode> <attempt> <instance> <first fence> <number> <contended> <key>   the lock is yours
//	w <attempt>                                                              somebody waits for what you hold
//	u <attempt>                                                              nobody waits for it any more
//	n <attempt>                                                              somebody was refused it, and does not wait
//	p <attempt> <ms>                                                         send a heartbeat then
//	l <attempt>                                                              your lease was ended by force: ask
type message struct {
	kind    string
	attempt identity.Attempt
	delay   time.Duration // of checkMessage

	mode          distributed.Mode // of grantMessage, as all below
	instance, key string
	grant         grant
}

const (
	grantMessage       = "g"
	contendedMessage   = "w"
	uncontendedMessage = "u"
	refusedMessage     = "n"
	checkMessage       = "p"
	lostMessage        = "l"
)

// readMessage returns false for what cannot be read.
func readMessage(text string) (m message, ok bool) {
	w := words(text)
	m.kind = w.next()
	if m.kind == grantMessage && w.next() == "s" {
		m.mode = distributed.Shared
	}
	m.attempt, _ = identity.ReadAttempt(w.next())
	switch m.kind {
	case grantMessage:
		m.instance, m.grant = w.next(), w.grant()
		m.key = string(w) // which may contain blanks
		ok = m.key != ""
	case contendedMessage, uncontendedMessage, refusedMessage, lostMessage:
		ok = true
	case checkMessage:
		m.delay, ok = time.Duration(w.number())*time.Millisecond, true
	}
	return m, ok && m.attempt != identity.Attempt{}
}

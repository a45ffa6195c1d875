package redlock

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/identity"
)

// Format is the version of keys, values and messages: 1, which they do not name. A lock's value of a later version begins with "wllock2:", or
// its number, and is refused.
const Format = 1

// tokenOf is the value of the lock's key while an attempt of this process has the vote. The number of its id orders attempts by age.
func tokenOf(id identity.Attempt, process string) string {
	return "wllock:" + id.String() + ":" + process
}

// age splits a token into what orders it; ok is false for values of foreigners.
func age(token string) (id identity.Attempt, process string, ok bool) {
	rest, wllocks := strings.CutPrefix(token, "wllock:")
	digits, process, cut := strings.Cut(rest, ":")
	id, ok = identity.ReadAttempt(digits)
	return id, process, ok && wllocks && cut
}

// byAge compares the age of attempts. All instances order attempts alike, so they agree who is to win a split vote.
func byAge(a, b string) int {
	idA, processA, _ := age(a)
	idB, processB, _ := age(b)
	return cmp.Or(cmp.Compare(idA.Number, idB.Number), cmp.Compare(processA, processB), cmp.Compare(idA.Random, idB.Random))
}

func older(a, b string) bool { return byAge(a, b) < 0 }

// instanceName is an instance as scripts know it: short, of plain letters.
func instanceName(instance string) string {
	sum := sha256.Sum256([]byte(instance))
	return hex.EncodeToString(sum[:8])
}

var laneSeed = maphash.MakeSeed()

func laneOf(key string) int { return int(maphash.String(laneSeed, key) % lanes) }

func modeLetter(m distributed.Mode) string {
	if m == distributed.Shared {
		return "s"
	}
	return "x"
}

// flag is how scripts take a yes or no.
func flag(is bool) int {
	if is {
		return 1
	}
	return 0
}

// millis rounds up: what a server is asked to keep lasts no shorter than what we reckon with.
func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// keysOf are the keys of a lock as all scripts about it take them.
func keysOf(key string) []string {
	return []string{key, markOf(conn.SystemOf(key)), helper("q:", key), helper("w:", key)}
}

// call returns a script about the bid. The number of the question is epoch; see vote.
func (a *bid) call(s *conn.Script, mode string, epoch uint64, more ...any) conn.Call {
	args := make([]any, conn.HeadLen, conn.HeadLen+10+len(more))
	s.Head(args, len(a.keys))
	for i := range a.keys {
		args = append(args, a.keys[i])
	}
	args = append(args, a.token, a.instance, mode, millis(distributed.ClaimWindow(a.ttl)), millis(a.ttl), epoch)
	return conn.Call{Script: s, Args: append(args, more...)}
}

// question is a call about the bid's lock to one server, to be tried once.
func (a *bid) question(n *node, c conn.Call, done func(*ask)) *ask {
	return &ask{node: n, Call: c, in: a.in, lane: a.lane, ttl: a.ttl, done: done}
}

// toAll asks all servers. done is called with each answer.
func (a *bid) toAll(c conn.Call, done func(*ask)) {
	for _, n := range a.b.nodes {
		n.send(a.question(n, c, done))
	}
}

func sendAll(asks []*ask) {
	for _, k := range asks {
		k.node.send(k)
	}
}

// standing is what a server says about an attempt.
type standing struct {
	kind      byte          // v: vote, w: waits, h: held and not queued, 0: unreadable
	found     byte          // of enter: 1: prev held the lock here, 0: it did not, -: none
	age       time.Duration // for how long the server has had its data
	longest   time.Duration // lease TTL in use, as far as it remembers
	contended bool
	rank      int
	rest      time.Duration // of the owner; negative: there is none
	mode      string        // of the owner: x, s, f: a foreigner's, -: none; b: a Break has ended our lease; d: it adopts what we want to adopt
	owner     string
	short     time.Duration // of a vote that was transferred: by so much it lasts for less than the window
}

func readEnter(reply string) standing {
	found, rest, _ := strings.Cut(reply, " ")
	s := readStanding(rest)
	if len(found) == 1 {
		s.found = found[0]
	}
	return s
}

func readStanding(reply string) (s standing) {
	f := strings.Split(reply, " ")
	switch {
	case f[0] == "vote" && len(f) == 4:
		s = standing{kind: 'v', contended: f[3] == "1", rest: -1}
	case (f[0] == "wait" || f[0] == "held") && len(f) == 7:
		s = standing{kind: f[0][0], rank: int(number(f[3])), rest: duration(f[4]), mode: f[5], owner: f[6]}
	default:
		return standing{}
	}
	s.age, s.longest = duration(f[1]), duration(f[2])
	return s
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// duration is a number of ms; no longer than can be reckoned with.
func duration(ms string) time.Duration {
	return time.Duration(min(number(ms), int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}

// message is a notice: "vote <token> <epoch> <contended> <age> <longest> <key>", "want <token> <instance> <key>",
// "idle <token> - <key>" or "gone <token> - <key>".
type message struct {
	kind, token, key string
	epoch            uint64
	contended        bool
	age              time.Duration // of the server, as in a standing
	longest          time.Duration // likewise
	instance         string
}

func readMessage(text string) (m message, ok bool) {
	kind, rest, _ := strings.Cut(text, " ")
	token, rest, _ := strings.Cut(rest, " ")
	first, rest, ok := strings.Cut(rest, " ")
	m = message{kind: kind, token: token, key: rest}
	switch kind {
	case "vote":
		f := strings.SplitN(rest, " ", 4)
		if len(f) < 4 {
			return m, false
		}
		m.epoch, m.contended, m.age, m.longest, m.key = uint64(number(first)), f[0] == "1", duration(f[1]), duration(f[2]), f[3]
	case "want":
		m.instance = first
	case "idle", "gone":
	default:
		return m, false
	}
	return m, ok
}

// A token names the process that it is of, so that each process whose question is answered with it learns who has the lock. It is
// made of letters and digits alone, because that is what scripts take, those of older versions, too: so what a name has
// beside them, and the Z, is escaped by a Z.
var (
	escaping   = strings.NewReplacer("Z", "ZZ", "-", "Zm", ".", "Zd", "_", "Zu", "~", "Zt")
	unescaping = map[byte]byte{'Z': 'Z', 'm': '-', 'd': '.', 'u': '_', 't': '~'}
)

// nameEnd is between the name of a process and its letters.
const nameEnd = "Zp"

// processOf is how tokens name a process: by its name, and by letters that no other backend has.
func processOf(name, letters string) string { return escaping.Replace(name) + nameEnd + letters }

// nameOf is the name of the process that a token is of; "" if an older version has written it.
func nameOf(token string) string {
	_, process, ok := age(token)
	if !ok {
		return ""
	}
	var name []byte
	for i := 0; i < len(process); i++ {
		c := process[i]
		if c != 'Z' {
			name = append(name, c)
			continue
		}
		if i++; i == len(process) {
			return ""
		}
		if process[i] == nameEnd[1] {
			return string(name)
		}
		if c, ok = unescaping[process[i]]; !ok {
			return ""
		}
		name = append(name, c)
	}
	return ""
}

// holder names the process that has the votes of a majority, as far as the answers to this attempt tell; "" for readers, whose
// token is that of the first, who may have gone. The caller holds mu.
func (a *bid) holder() string {
	seen := map[string]int{}
	for i := range a.seats {
		s := a.seats[i].standing
		if (s.kind == 'w' || s.kind == 'h') && s.mode == "x" {
			if seen[s.owner]++; seen[s.owner] >= a.b.quorum {
				return nameOf(s.owner)
			}
		}
	}
	return ""
}

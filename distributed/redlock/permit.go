package redlock

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/wllock/wllock/distributed"
)

// mostPermits bounds the limit of a permit: a server that votes for one names all holders.
const mostPermits = 1000

// A permit is decided in two steps (rule Q11), because votes alone cannot count: of 5 servers that each admit n, majorities can be
// made for 5n/3.
//
//	waiting ──the gates of a majority, whose lists name fewer than n holders──▶ claiming ──a majority of those: passed──▶ leased
//	                                                                              └─not in time──▶ a new token, at the end
//
// The gate of a server is its vote for the next permit. While an attempt has it nobody else gets anything there, and the answer lists
// who is inside. Passing through is a write, which the server refuses if the gate has been another's since.
//
// Why there are never n+1 holders: take the one of them that decided last. Its lists are of a majority, and each other one has
// passed on a majority; let s be a server in both. Both had the gate of s, one after the other, and each until it had decided. So the
// other one had it first, and had passed when s made the list: the list names it, unless s has removed it since, which s does
// only when it was released, or when its lease has expired (or s was restarted, and counts again only after that time). So the last one's
// lists named all n others. Readers count alike: they get no vote of a server whose gate is taken.
//
// So what counts as passed are the servers whose lists were read, and among them the majority whose gates stay ours for longest: an answer
// after that time may be of a gate that was another's in between. The caller holds mu, and room has just said yes.
func (a *attempt) pass() func() {
	var sent []time.Time
	for i := range a.seats {
		if a.read&(1<<i) != 0 {
			sent = append(sent, a.seats[i].voted)
		}
	}
	until, ok := validUntil(len(a.seats), sent, a.window())
	if !ok {
		return nothing
	}
	for i := range a.seats {
		if distributed.Validity(a.seats[i].voted, a.window()).Before(until) {
			a.read &^= 1 << i
		}
	}
	a.state = claiming
	a.b.beats.Remove(&a.item)
	return func() { a.claim(until) }
}

// mayCount reports that a server that has let us pass counts: its list was part of the decision. A lease counts all that have it.
func (a *attempt) mayCount(l *lease, index int) bool {
	return a.limit == 0 || l != nil || a.read&(1<<index) != 0
}

// claimed is how long a claim lasts: a permit's is its grant.
func (a *attempt) claimed() time.Duration {
	if a.limit > 0 {
		return a.window()
	}
	return a.ttl
}

// room reports that the servers that count are a majority and name fewer holders than the limit, all lists together. The caller
// holds mu.
func (a *attempt) room() bool {
	if a.limit == 0 {
		return true
	}
	a.read = 0
	var holders []string
	now, longest := time.Now(), a.longest()
	for i := range a.seats {
		s := &a.seats[i]
		if !s.counts(now, a.ttl, longest) {
			continue
		}
		a.read |= 1 << i
		for _, token := range s.standing.beside {
			if token != a.token && !slices.Contains(holders, token) {
				holders = append(holders, token)
			}
		}
	}
	return bits.OnesCount64(a.read) >= a.b.quorum && len(holders) < a.limit
}

// asPermit is what a server says to an attempt for a permit. Only a gate is a vote.
func (a *attempt) asPermit(s standing) standing {
	if a.limit > 0 && s.kind == 'v' && !s.permit {
		s.kind, s.mode, s.owner, s.rest, s.rank = 'w', "s", "-", -1, 1
	}
	return s
}

// competes reports that an attempt that has a server's vote in this mode may be one that the vote is split with. Readers and holders
// of permits are none to a permit: it waits for them.
func (a *attempt) competes(mode string) bool {
	return mode == "x" || mode == "p" || mode == "s" && a.limit == 0
}

// full reports a permit that waits at some server for those inside. The caller holds mu.
func (a *attempt) full() bool {
	return a.limit > 0 && slices.ContainsFunc(a.seats, func(s seat) bool { return s.standing.kind == 'w' && s.standing.mode == "s" })
}

// passing reports a permit that waits only for others to pass through their gates, which takes them a round trip: nothing else is in its
// way at any server that has answered. The caller holds mu.
func (a *attempt) passing() bool {
	return a.limit > 0 && !slices.ContainsFunc(a.seats, func(s seat) bool { return s.standing.kind == 'w' && s.standing.mode != "p" })
}

// letter is the attempt's mode in questions that enter or wait.
func (a *attempt) letter() string {
	if a.limit > 0 {
		return "p" + strconv.Itoa(a.limit)
	}
	return modeLetter(a.mode)
}

func checkLimit(req *distributed.Request) error {
	if req.Limit > mostPermits {
		return fmt.Errorf("a limit of %d leases: want %d or fewer", req.Limit, mostPermits)
	}
	return req.CheckLimit()
}

package redlock

import (
	"strings"
	"time"

	"github.com/wllock/wllock/internal/conn"
)

// extend asks all servers to extend the votes of a lease, or of one that is claimed.
//
// A majority that still had our vote has had it ever since, so nobody else can have had one meanwhile. A server that has lost it and is free
// votes anew ("new") when asked for that by the next renewal, and counts from the one after it (rule Q6). So a lease survives that the
// servers are restarted one after the other.
func (a *bid) extend() *poll {
	p := a.renewal("renew")
	a.mu.Lock()
	letter, vacant := a.letter(), a.vacant
	a.mu.Unlock()
	usual := a.renewCall(letter, 0)
	for _, n := range a.b.nodes {
		c := usual
		if vacant&(1<<n.index) != 0 {
			c = a.renewCall(letter, 1)
		}
		n.send(a.question(n, c, p.done))
	}
	return p
}

// renewCall returns a renewal; revote 1: by a server that has lost our vote.
func (a *bid) renewCall(letter string, revote int) conn.Call {
	return a.call(renewScript, letter, 0, millis(a.ttl), revote)
}

// renewal counts what servers say of the votes of a lease, or of one that is claimed.
func (a *bid) renewal(what string) *poll {
	tally, contended := held{n: len(a.seats)}, false
	p := a.b.poll(what, func(k *ask) verdict {
		word, waits, age, _ := readRenewal(k)
		contended = contended || waits
		young, void := a.doubts(k.node.index, age)
		tally.count(word, young, void)
		return tally.judge(a.over())
	})
	p.heard, p.then = a.renewed, func(p *poll) { a.extended(p, contended) }
	return p
}

// readRenewal reads the answer of a server: what it does, whether others wait, how old its data is, and the longest TTL that it knows.
func readRenewal(k *ask) (word string, waits bool, age, longest time.Duration) {
	if k.Err != nil {
		return "", false, 0, 0
	}
	f := strings.Split(k.Reply, " ")
	if len(f) < 4 {
		return f[0], false, 0, 0
	}
	return f[0], f[1] == "1", duration(f[2]), duration(f[3])
}

// renewed notes what one server says beside its vote. One that votes anew for what was released meanwhile is told so.
func (a *bid) renewed(k *ask) {
	word, _, _, longest := readRenewal(k)
	if a.in.learn(longest); word == "new" && a.hasEnded() {
		a.leave(k.node)
	}
	a.mu.Lock()
	include(&a.vacant, k.node.index, word == "none")
	a.mu.Unlock()
}

// doubts tells why what a server says of our lease may not count: its data may be too young, and its votes void.
func (a *bid) doubts(index int, age time.Duration) (young, void bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return age < a.longest(), a.seats[index].void
}

// extended takes what the servers have decided about a renewal.
func (a *bid) extended(p *poll, contended bool) {
	switch {
	case p.verdict == granted:
		a.a.Renewed(p.sent, contended) // rule K4
		return
	case p.verdict == unavailable:
		a.a.Unrenewed(p.failure())
		if a.a.Lease() != nil || !a.over() {
			return
		} // else it was to be claimed
	}
	a.a.Gone()
}

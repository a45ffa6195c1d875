package locktest

import (
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
)

var keyCases = []Case{
	{"keys do not touch each other", func(e *env, _ string) {
		m, other := e.member(), e.member()
		leases := make(map[string]distributed.Lease)
		for i := range 300 {
			key := e.key(strings.Repeat("k", i+1))
			leases[key] = m.lease(key)
		}
		for key, l := range leases {
			other.refused(key)
			e.release(l)
			e.release(other.lease(key))
		}
	}},
	{"any two valid keys are different locks", func(e *env, _ string) {
		m, other := e.member(), e.member()
		leases := make([]distributed.Lease, len(awkward))
		for i, key := range awkward {
			leases[i] = m.lease(e.key(key), noWait) // none is held because another one is
		}
		for i, key := range awkward {
			p := other.place(e.key(key))
			e.passOn(leases[i], p)
		}
		for _, key := range awkward {
			e.release(other.lease(e.key(key), noWait))
		}
	}},
	{"a backend that works answers a ping", func(e *env, _ string) {
		if err := try(e.Backend.Ping); err != nil {
			e.Errorf("Ping: %v", err)
		}
	}},
	// A probe knows nothing of holders: a lock that is held works.
	{"a probe takes no lock", func(e *env, key string) {
		p, ok := distributed.ProberOf(e.Backend)
		if !ok {
			e.Skipf("no Prober")
		}
		m := e.member()
		ctx, cancel := timely()
		defer cancel()
		ask := func(ttl time.Duration) error { return p.Probe(ctx, distributed.Probe{Key: key, TTL: ttl}) }
		free := ask(e.ttl)
		l := m.lease(key, lasting(time.Minute), noWait) // at once
		for when, err := range map[string]error{"free": free, "held": ask(e.ttl)} {
			if err != nil {
				e.Errorf("Probe of a lock that is %s: %v", when, err)
			}
		}
		if err := ask(distributed.MinTTL - 1); err == nil {
			e.Errorf("Probe of a TTL below MinTTL: nil; want an error")
		}
		e.release(l)
	}},
}

// awkward are keys that a backend could mistake for its own punctuation, or for one another.
var awkward = []string{
	"a", "a:", ":a", "a:b", "a::b", "a:b:c", "{a}", "{a}b", "}a{", "{}a", "{", "}", "{{a}}", "a b", " a", "a ", "*", "a*",
	"a/b", "a\\b", "a'b", `a"b`, "a;b", "a--b", "a%sb", "a\u00e9", "ae\u0301", "\u4ef7\u683c", "\U0001f512", "A",
	strings.Repeat("x", 400), strings.Repeat("x", 401), strings.Repeat("{", 400),
}

package site

import (
	"encoding/json"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dop251/goja"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// load runs scripts of the pages outside of a browser, and returns one of their functions.
func function[F any](t *testing.T, name string, scripts ...string) (f F) {
	t.Helper()
	vm := goja.New()
	vm.SetFieldNameMapper(goja.TagFieldNameMapper("json", true))
	for _, script := range scripts {
		_, err := vm.RunString(script)
		require.NoError(t, err)
	}
	require.NoError(t, vm.ExportTo(vm.Get(name), &f))
	return f
}

func asset(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("assets/" + name)
	require.NoError(t, err)
	return string(text)
}

type shop struct {
	Hold     float64 `json:"hold"`
	Slowest  float64 `json:"slowest"`
	Servers  int     `json:"servers"`
	Patience float64 `json:"patience"`
	RTT      float64 `json:"rtt"`
	Failover float64 `json:"failover"`
}

type advice struct {
	Settings [][]string `json:"settings"`
	Facts    []string   `json:"facts"`
	Warnings []string   `json:"warnings"`
}

func (a advice) environment() map[string]string {
	all := map[string]string{}
	for _, s := range a.Settings {
		all[s[0]] = s[2]
	}
	return all
}

// advise returns what the calculator says.
func advise(t *testing.T) func(shop) advice {
	t.Helper()
	tune := function[func(shop) (map[string]any, error)](t, "tune", asset(t, "calculator.js"))
	return func(s shop) (a advice) {
		found, err := tune(s)
		require.NoError(t, err)
		data, err := json.Marshal(found)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &a))
		return a
	}
}

// example is the one of docs/tuning.md.
var example = shop{Hold: 3, Slowest: 30, Servers: 4, Patience: 2000, RTT: 0.5, Failover: 5000}

// TestCalculatorFollowsTheGuide: the formulas and their results, as docs/tuning.md has them.
func TestCalculatorFollowsTheGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/tuning.md")
	require.NoError(t, err)
	for _, line := range []string{
		"clients give up after 2 s, hold 3 ms (the slowest 30 ms), 4 servers",
		"| `WithThreshold` | 0.7 × (client timeout) / (hold × servers) | 0.7 × 2 s / 12 ms = 116 |",
		"| `WithWait` | (client timeout) − (slowest hold) − (network time) | 1.9 s |",
		"| `WithLockTimeMax` | ten times the slowest healthy hold, at least a second | 1 s |",
		"| 5 s: pauses up to 1.25 s |",
		"| `WithMaxTenure` | 0.2 × (client timeout) / (servers − 1), at most 100 ms | 100 ms |",
	} {
		require.Contains(t, string(guide), line, "the calculator follows docs/tuning.md: change both")
	}
	found := advise(t)(example)
	require.Empty(t, found.Warnings)
	require.Equal(t, map[string]string{
		"WLLOCK_SINGLE_WAIT_THRESHOLD": "116", "WLLOCK_WAIT": "1.9s", "WLLOCK_LOCK_TIME_MAX": "1s", "WLLOCK_LEASE_TTL": "5s",
		"WLLOCK_MAX_TENURE": "100ms", "WLLOCK_MAX_HANDOFFS": "128", "WLLOCK_LINGER": "200us",
	}, found.environment())
	require.Contains(t, found.Facts[0], "At most 333 calls per second", "as the guide says of 3 ms")
}

// golden has what the calculator says of some shops, for a test of package config, which must take it.
const golden = "testdata/settings.json"

func TestCalculatorIsAsRecorded(t *testing.T) {
	ask := advise(t)
	var all []map[string]string
	for _, s := range []shop{
		example,
		{Hold: 0.05, Slowest: 1, Servers: 1, Patience: 100, RTT: 0.1, Failover: 50},
		{Hold: 700, Slowest: 3000, Servers: 20, Patience: 2000, RTT: 300, Failover: 100},
		{Hold: 12.345, Slowest: 80, Servers: 7, Patience: 4567, RTT: 3.21, Failover: 1234},
	} {
		all = append(all, ask(s).environment())
	}
	got, err := json.MarshalIndent(all, "", "\t")
	require.NoError(t, err)
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != string(got)+"\n" {
		require.NoError(t, os.WriteFile(golden, append(got, '\n'), 0o644))
		t.Error("what the calculator says has changed: it is written to " + golden)
	}
}

// TestCalculatorHoldsItsPromises: for shops of all kinds, what it says fits together.
func TestCalculatorHoldsItsPromises(t *testing.T) {
	ask := advise(t)
	for _, hold := range []float64{0.05, 1, 3, 80, 700} {
		for _, servers := range []int{1, 2, 8, 50} {
			for _, patience := range []float64{50, 300, 2000, 30000} {
				for _, rtt := range []float64{0, 0.3, 40, 250} {
					s := shop{Hold: hold, Slowest: 5 * hold, Servers: servers, Patience: patience, RTT: rtt, Failover: 3000}
					check(t, s, ask(s))
				}
			}
		}
	}
}

func check(t *testing.T, s shop, a advice) {
	t.Helper()
	ms := func(name string) float64 {
		d, err := time.ParseDuration(a.environment()[name])
		require.NoError(t, err, "%+v: %s", s, name)
		return float64(d) / float64(time.Millisecond)
	}
	require.NotContains(t, a.environment()["WLLOCK_SINGLE_WAIT_THRESHOLD"], ".")
	assert.Positive(t, ms("WLLOCK_WAIT"), "%+v: 0 would be no limit", s)
	assert.GreaterOrEqual(t, ms("WLLOCK_MAX_TENURE"), 1.0)
	assert.GreaterOrEqual(t, ms("WLLOCK_LEASE_TTL"), max(50, s.RTT/0.22), "%+v: Enter would be refused", s)
	assert.GreaterOrEqual(t, ms("WLLOCK_LOCK_TIME_MAX"), s.Slowest)
	if len(a.Warnings) == 0 {
		assert.LessOrEqual(t, ms("WLLOCK_WAIT")+s.Slowest, s.Patience, "%+v: the slowest call that waited longest is late", s)
	}
	text := strings.Join(append(a.Facts, a.Warnings...), " ")
	for _, wrong := range []string{"NaN", "undefined", "Infinity"} {
		assert.NotContains(t, text, wrong, "%+v", s)
	}
}

func TestCalculatorWarns(t *testing.T) {
	ask := advise(t)
	for want, change := range map[string]func(*shop){
		"":                                   func(*shop) {},
		"A single waiter is too many":        func(s *shop) { s.Hold = 900; s.Slowest = 950 },
		"The slowest hold alone":             func(s *shop) { s.Slowest = 2500 },
		"a lease needs at least 1.14s":       func(s *shop) { s.RTT, s.Failover = 250, 1000 },
		"A pause of 50ms":                    func(s *shop) { s.Failover = 200 },
		"while it changes servers: a longer": func(s *shop) { s.RTT = 20 },
	} {
		s := example
		change(&s)
		require.Contains(t, strings.Join(ask(s).Warnings, "\n"), want)
	}
}

// TestSearchFinds: under the words that people know, the first three hits have the page that answers them.
func TestSearchFinds(t *testing.T) {
	_, files := built(t, "../..")
	type hit struct {
		Address string `json:"a"`
		Heading string `json:"h"`
	}
	rank := function[func(query string) ([]hit, error)](t, "find", "var window = {}", files["assets/search-index.js"], asset(t, "rank.js"),
		"function find(q) { return rank(window.searchIndex, q).map(s => ({a: s.a, h: s.h})) }")
	for page, queries := range map[string]string{
		"index":      "license, licence, read lock, RWMutex, shared, try lock, performance, how fast",
		"backends":   "price, memcached, failover",
		"batching":   "batch, batches",
		"cli":        "docker, command line, force unlock",
		"comparison": "compare, benchmark, alternatives",
		"errors":     "ErrQueueFull, ErrWaitTimeout",
		"glossary":   "lease, leases, timeout, time-out, ttl, mutex, fencing token, exactly once",
		"guarantees": "gc, garbage collection, backup, clock skew, split brain, network partition",
		"middleware": "rate limit, gin, 429",
		"managed":    "elasticache, rds, upstash",
		"migrating":  "redsync",
		"operations": "crash, metrics, prometheus, monitoring, alerts, tracing",
		"outage":     "outage, circuit breaker",
		"production": "faq, sizing, capacity, upgrade, rolling upgrade, rolling restart, version, connections, maxclients",
		"quickstart": "install, getting started",
		"recipes": "leader, election, leader election, semaphore, permits, deadlock, multiple keys, kubernetes, helm, cron, idempotent, transaction, lambda, " +
			"thundering herd",
		"redis":     "acl, redis acl, setuser, valkey, sentinel",
		"redlock":   "redlock",
		"settings":  "tls, ssl, password, environment variables, WLLOCK_LEASE_TTL",
		"sql":       "postgres, mysql, sqlite, pgbouncer",
		"testing":   "unit test, mock",
		"tuning":    "WithMaxTenure, max tenure",
		"zookeeper": "zookeeper",
	} {
		for _, query := range strings.Split(queries, ", ") {
			hits, err := rank(query)
			require.NoError(t, err)
			first := hits[:min(3, len(hits))]
			assert.True(t, slices.ContainsFunc(first, func(h hit) bool {
				file, anchor, _ := strings.Cut(h.Address, "#")
				return path.Base(file) == page+".html" && anchor != "" && h.Heading != ""
			}), "%s: want a section of %s in %v", query, page, first)
		}
	}
	for _, query := range []string{"", "xyzzy", "lease xyzzy", "__proto__"} {
		hits, err := rank(query)
		require.NoError(t, err)
		require.Empty(t, hits, query)
	}
}

// TestSearchPutsHeadingsFirst: a title comes before a heading, a heading before many words in a text, and users' pages before others.
func TestSearchPutsHeadingsFirst(t *testing.T) {
	rank := function[func(query string) ([]string, error)](t, "find", asset(t, "rank.js"), `const index = [
		{p: "A", h: "Text", a: "text", t: "cron cron cron cron cron cron cron cron cron cron"},
		{p: "B", h: "Cronometers", a: "beginning", t: ""},
		{p: "C", h: "A cron", a: "inside", t: "", w: 0.4},
		{p: "D", h: "A cron", a: "heading", t: ""},
		{p: "Cron", h: "Cron", a: "title", t: ""},
	]; function find(q) { return rank(index, q).map(s => s.a) }`)
	found, err := rank("cron")
	require.NoError(t, err)
	require.Equal(t, []string{"title", "heading", "inside", "beginning", "text"}, found)
}

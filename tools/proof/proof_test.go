package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const top = "../.."

// TestPageIsWhatIsGenerated: what is committed is made of the committed lists and results, and each test that a list names exists.
func TestPageIsWhatIsGenerated(t *testing.T) {
	want, err := page(top)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(top, "docs/proof.md"))
	require.NoError(t, err)
	require.Equal(t, want, string(got), "run: make proof")
}

func TestThereAreSixtyFaults(t *testing.T) {
	n := 0
	for _, group := range faults {
		for _, f := range group.all {
			n++
			assert.False(t, len(f.tests) == 0 && f.note == "", "%s: no test, and no reason", f.what)
		}
	}
	assert.Equal(t, 60, n)
}

// TestTestsAreFound: a name that leads nowhere is an error, and one that does has its file.
func TestTestsAreFound(t *testing.T) {
	all := newTests(top)
	for test, want := range map[string]string{
		"tools/proof TestTestsAreFound":         "[`proof TestTestsAreFound`](../tools/proof/proof_test.go#TestTestsAreFound)",
		"local TestKeysLeaveNoMemory/used once": "[`local TestKeysLeaveNoMemory/used once`](../local/memory_test.go#TestKeysLeaveNoMemory)",
		". FuzzNamesDoNotMeet":                  "[`wllock FuzzNamesDoNotMeet`](../fuzz_test.go#FuzzNamesDoNotMeet)",
		"distributed/zklock TestConformance/readers hold together and keep writers out": "[`zklock TestConformance/readers hold together and keep writers out`](../distributed/zklock/conformance_test.go#TestConformance)",
		"distributed/zklock TestScenes/a free lock":                                     "[`zklock TestScenes/a free lock`](../distributed/zklock/scenes_test.go#TestScenes)",
	} {
		link, err := all.link(test)
		require.NoError(t, err)
		require.Equal(t, want, link)
	}
	for test, says := range map[string]string{
		"local": "want a directory", "local TestGone": "no such test", "gone TestStress": "no such test", "local TestStress/gone": "no case of that name",
		"local TestKeysLeave": "no such test",
	} {
		_, err := all.link(test)
		require.ErrorContains(t, err, says, test)
	}
}

// write fills a directory with results.
func write(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

const aRun = `{"backend":"redis","shape":"one","store":"compares","began":"2026-11-30T12:00:00Z","seconds":60.2,"commit":"a760e34a62a3824bad7ba7650d5c6a9b54fcba84-dirty","go":"go1.26","seed":18446744073709551615,
	"processes":5,"operations":1234567,"entries":900,"contended":10,"accesses":20,"refused":3,"faults":{"stopped":2,"killed":7},
	"recoveries":{"killed holder":{"n":7,"median_ms":612.4,"max_ms":1400}},"violations":[{"rule":"S1 exclusion","text":"two holders"}]}`

func TestResultsAreShown(t *testing.T) {
	r, err := read(write(t, map[string]string{
		"chaos-redis-one-compares.json": aRun,
		"schedules.jsonl": `{"package":"distributed/driver","plays":1000,"seed":18446744073709551615,"seconds":60,"commit":"abc","began":"2026-11-30T12:00:00Z"}
{"package":"distributed/driver","plays":2000,"seed":1,"seconds":61,"commit":"def","began":"2026-12-01T12:00:00Z"}`,
		"model.json": `{"began":"2026-11-30T12:00:00Z","commit":"abc","instances":[
			{"name":"two","about":"two of them","file":"grant.pml","live":true,"states":12345,"depth":9,"seconds":2},
			{"name":"three","about":"three","file":"quorum.pml","states":1,"depth":9,"seconds":2,"broken":"oneHolder"}],
			"mistakes":[{"name":"A","rule":"no fence","where":"enter.lua","in":"two","caught_by":"fencesGrow"},{"name":"B","rule":"no queue","where":"leave.lua","in":"two"}]}`,
		"mutants.json": `{"began":"2026-11-30T12:00:00Z","commit":"abc","mutants":[
			{"rule":"K4: x","file":"distributed/redislock/lua/a.lua","language":"Lua","found_by":"distributed/redislock TestA/one","seconds":1},
			{"rule":"K5: y","file":"distributed/redislock/lua/a.lua","language":"Lua","found_by":"distributed/redislock TestA/two","seconds":1},
			{"rule":"K6: z","file":"bundle.go","language":"Go","found_by":"","why":"SURVIVED","seconds":1}]}`,
	}))
	require.NoError(t, err)
	w := &writer{tests: newTests(top)}
	w.runs(r.chaos)
	w.recoveries(r.chaos)
	w.schedules(r.schedules)
	w.model(r.model)
	w.teeth(r)
	require.Empty(t, w.errs)
	for _, want := range []string{
		"| redis | one | 5 | 1,234,567 | 900 | 10 | 9 | 60 | 18446744073709551615 | `a760e34a-dirty` | 2026-11-30 | S1 exclusion 1 |",
		"| Fault | redis |", "| killed | 7 |", "| stopped | 2 |",
		"- **redis-one, S1 exclusion:** `two holders`",
		"**Missing:** no result of redlock, etcd, zookeeper, postgres, mariadb, sqlite, nats, kubernetes, s3, dynamodb.",
		"**Missing:** no result of redis, redlock, etcd, zookeeper, postgres, mariadb, sqlite, nats, kubernetes, s3, dynamodb, memcached.",
		"| redis | one | compares | killed holder | 7 | 612 | 1400 |",
		"| [distributed/driver](../distributed/driver) | 3,000 | 121 | 1 | `def` | 2026-12-01 |",
		"3 lines of 2026-11-30, `abc`: 2 are found.", "| `distributed/redislock` | Lua | 2 | 2 | `TestA` 2 |", "- **Not found:** K6: z (`bundle.go`): SURVIVED",
		"2 instances of 2026-11-30, `abc`, and 2 mistakes: 1 are caught.",
		"| two | two of them | [grant.pml](../test/model/grant.pml) | safety, and that who waits is served | 12,345 | 9 | 2 | holds |",
		"| safety | 1 | 9 | 2 | **breaks oneHolder** |", "| no fence | `enter.lua` | two | fencesGrow | `A` |", "| no queue | `leave.lua` | two | **not found** | `B` |",
	} {
		require.Contains(t, w.String(), want)
	}
}

func TestMissingResultsAreSaid(t *testing.T) {
	r, err := read(t.TempDir())
	require.NoError(t, err)
	w := &writer{tests: newTests(top)}
	w.runs(r.chaos)
	w.recoveries(r.chaos)
	w.model(r.model)
	w.teeth(r)
	for _, want := range []string{"no result of redis", "no result.", "no result of `make mutants`", "no result of `make model`"} {
		require.Contains(t, w.String(), "**Missing:** "+want)
	}
}

func TestWrongResultsAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"chaos-a.json": `{"backend":"redis","shape":"one","store":"some","began":"2026-11-30T12:00:00Z","commit":"abc"}`,
		"chaos-b.json": `{}`, "chaos-c.json": `{`, "model.json": `[]`, "schedules.jsonl": "{}\n{", "sale.json": `{}`,
	} {
		_, err := read(write(t, map[string]string{name: text}))
		require.ErrorContains(t, err, name)
	}
}

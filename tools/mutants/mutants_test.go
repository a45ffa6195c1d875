package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryLineIsThere finds out without running anything what has changed under the list.
func TestEveryLineIsThere(t *testing.T) {
	top, err := filepath.Abs("../..")
	require.NoError(t, err)
	for _, m := range list {
		_, _, err := m.apply(top, t.TempDir())
		assert.NoError(t, err, m.what)
		for _, pkg := range m.packages() {
			assert.DirExists(t, filepath.Join(top, pkg))
		}
	}
}

// TestReport: what is written names the rule, what was broken in which language, and the test; or why none has found it.
func TestReport(t *testing.T) {
	r := newReport(t.TempDir())
	assert.Equal(t, "unknown", r.Commit, "a folder that is no clone")
	r.add(mutant{what: "K4", file: "local/queue.go"}, "local TestModel", nil, 1.26)
	r.add(mutant{what: "R17", file: "distributed/redislock/lua/break.lua"}, "", errors.New("SURVIVED"), 2)
	r.add(mutant{what: "D7", file: statements[1]}, "distributed/sqllock TestReaper", nil, 3)
	file := filepath.Join(t.TempDir(), "results", "mutants.json")
	require.NoError(t, r.write(file))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var got report
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, *r, got)
	require.Equal(t, []judged{
		{Rule: "K4", File: "local/queue.go", Language: "Go", FoundBy: "local TestModel", Seconds: 1.2},
		{Rule: "R17", File: "distributed/redislock/lua/break.lua", Language: "Lua", Why: "SURVIVED", Seconds: 2},
		{Rule: "D7", File: "distributed/sqllock/dialect.go", Language: "SQL", FoundBy: "distributed/sqllock TestReaper", Seconds: 3},
	}, got.Mutants)
	top, err := filepath.Abs("../..")
	require.NoError(t, err)
	for _, name := range statements {
		assert.FileExists(t, filepath.Join(top, name))
	}
}

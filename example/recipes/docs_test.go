package recipes_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page of the recipes, and the code that it shows: everything here and in service that is tested.
const page = "../../docs/recipes.md"

var shown = []string{"*.go", "service/*.go", "service/*.yaml", "service/shopclient/*.go"}

// TestBlocksOfThePageAreTested: the paragraphs of a block stand in one file of this module, in this order, as they are but for their
// indentation. A line of dots is for lines left out, and a blank line may be.
func TestBlocksOfThePageAreTested(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var files []string
	for _, pattern := range shown {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range found {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			files = append(files, unindented(string(text)))
		}
	}
	blocks := regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$").FindAllSubmatch(text, -1)
	require.Greater(t, len(blocks), 10)
	for _, block := range blocks {
		var in bool
		for _, file := range files {
			in = in || contains(file, unindented(string(block[2])))
		}
		assert.True(t, in, "in no file: %s", block[2])
		for line := range strings.Lines(string(block[2])) {
			assert.LessOrEqual(t, len(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    ")), 106, "a reader has to scroll: %s", line)
		}
	}
}

func unindented(text string) string {
	return regexp.MustCompile(`(?m)^[\t ]+`).ReplaceAllString(text, "")
}

func contains(file, block string) bool {
	for _, part := range regexp.MustCompile(`(?m)^(\.\.\.)?\n`).Split(block, -1) {
		_, after, found := strings.Cut(file, part)
		if !found {
			return false
		}
		file = after
	}
	return true
}

// Words are where somebody who knows another lock looks for them.
func TestWordsAreFound(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, name := range []string{"glossary.md", "recipes.md"} {
		text, err := os.ReadFile(filepath.Join("../../docs", name))
		require.NoError(t, err)
		all.Write(text)
	}
	for _, word := range []string{
		"deadlock", "leader election", "cron", "reentrant", "fencing token", "semaphore", "rate limit", "load shedding", "idempotency", "mutex",
		"read-write lock", "try lock", "thundering herd", "stampede", "singleflight", "watchdog", "at-least-once", "exactly once", "backpressure",
		"split brain", "ShedLock", "starvation", "timeout", "advisory lock", "optimistic",
	} {
		assert.Contains(t, strings.ToLower(all.String()), strings.ToLower(word))
	}
}

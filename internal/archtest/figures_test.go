package archtest

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cells returns a row of a table in the results: what follows its title, by column.
func cells(t *testing.T, results, table, contender string) map[string]string {
	t.Helper()
	_, rest, found := strings.Cut(results, "### "+table+"\n")
	require.True(t, found, table)
	var titles []string
	for line := range strings.Lines(rest) {
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		switch {
		case row[0] == "contender":
			titles = row
		case row[0] == contender || strings.HasPrefix(row[0], contender+","):
			all := map[string]string{}
			for i, title := range titles {
				all[title], _, _ = strings.Cut(row[i], " (")
			}
			return all
		}
	}
	require.Fail(t, "no row", "%s in %s", contender, table)
	return nil
}

// TestREADMEFiguresAreMeasured: each row is what the last run of `make bench` wrote of wllock and its best rival.
func TestREADMEFiguresAreMeasured(t *testing.T) {
	noteFiles(t)
	results := read(t, filepath.Join(root, "benchmarks/results/results.md"))
	readme := read(t, filepath.Join(root, "README.md"))
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \| ([\d,]+) \| ([\w-]+) ([\d,]+) \| \**([\d.]+)×\** \|$`).FindAllStringSubmatch(readme, -1)
	require.Len(t, rows, len(scenarios))
	for _, row := range rows {
		table := scenarios[row[1]]
		require.NotEmpty(t, table, row[1])
		ours, best := cells(t, results, table, "wllock"), cells(t, results, table, row[3])
		assert.Equal(t, []string{row[2], row[4]}, []string{ours["ops/s"], best["ops/s"]}, row[0])
		assert.Equal(t, "× 1.00", best["to the best rival"], row[0])
		ratio, err := strconv.ParseFloat(strings.TrimPrefix(ours["to the best rival"], "× "), 64)
		require.NoError(t, err)
		said, err := strconv.ParseFloat(row[5], 64)
		require.NoError(t, err)
		assert.InEpsilon(t, ratio, said, 0.02, row[0])
	}
}

// scenarios are the tables of the rows in the README.
var scenarios = map[string]string{
	"1 caller, a free key each time, near":                "free-1, loopback",
	"8 Lockers of 16 callers, one key, near":              "hot-8x16, loopback",
	"8 Lockers of 16 callers, one key, far":               "hot-8x16, 0.5 ms each way",
	"64 callers, one key, 1 ms of work, far":              "work-1x64, 0.5 ms each way",
	"8 Lockers of 16 callers, each lock over Redis, near": "every-turn-8x16, loopback",
}

// TestComparisonIsMeasured looks for the figures of the comparison in the tables that it sums up.
func TestComparisonIsMeasured(t *testing.T) {
	results := read(t, filepath.Join(root, "benchmarks/results/results.md"))
	page := read(t, filepath.Join(root, "docs/comparison.md"))
	rows := regexp.MustCompile(`(?m)^\| [^|]+ \| ([\d,]+) \| ([\d,]+) \| \**[\d.]+×\** \|$`).FindAllStringSubmatch(page, -1)
	require.Len(t, rows, 10)
	for _, row := range rows {
		for _, figure := range row[1:] {
			assert.Contains(t, results, "| "+figure+" (", "%s", row[0])
		}
	}
}

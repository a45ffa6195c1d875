package archtest

import (
	"path/filepath"
	"regexp"
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

// TestREADMEFiguresAreMeasured: what the README says of wllock and redsync is what the last run of `make bench` wrote.
func TestREADMEFiguresAreMeasured(t *testing.T) {
	results := read(t, filepath.Join(root, "benchmarks/results/results.md"))
	readme := read(t, filepath.Join(root, "README.md"))
	ours := cells(t, results, "hot-8x16, 0.5 ms each way", "wllock")
	theirs := cells(t, results, "hot-8x16, 0.5 ms each way", "redsync")
	for column, sentence := range map[string]string{
		"ops/s": "%s instead of %s", "p99": "within %s instead of %s", "commands/op": "%s commands per lock instead of %s",
	} {
		want := strings.Replace(strings.Replace(sentence, "%s", ours[column], 1), "%s", theirs[column], 1)
		assert.Contains(t, strings.Join(strings.Fields(readme), " "), want)
	}
}

// TestComparisonIsMeasured looks for the figures of the comparison in the tables that it sums up.
func TestComparisonIsMeasured(t *testing.T) {
	results := read(t, filepath.Join(root, "benchmarks/results/results.md"))
	page := read(t, filepath.Join(root, "docs/comparison.md"))
	rows := regexp.MustCompile(`(?m)^\| [^|]+ \| ([\d,]+)[^|]* \| ([\d,]+) \| [^|]*x [\d.]+[^|]* \|$`).FindAllStringSubmatch(page, -1)
	require.Len(t, rows, 10)
	for _, row := range rows {
		for _, figure := range row[1:] {
			assert.Contains(t, results, "| "+figure+" (", "%s", row[0])
		}
	}
}

package archtest

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const tlsTable = "internal/tlstest/table.go"

// testLink is a link to a file of tests, and the test's name if the address has it.
var testLink = regexp.MustCompile(`\[([^]]+)\]\(([^)#]+_test\.go)(?:#(\w+))?\)`)

// TestPagesNameTests looks for the tests that the pages which promise something link: by the name in the address or in the text, or as
// cases of the table of TLS.
func TestPagesNameTests(t *testing.T) {
	noteFiles(t)
	cases := read(t, filepath.Join(root, tlsTable))
	for _, page := range []string{"SECURITY.md", "docs/guarantees.md", "docs/production.md"} {
		links := testLink.FindAllStringSubmatch(read(t, filepath.Join(root, page)), -1)
		assert.NotEmpty(t, links, page)
		for _, link := range links {
			name, code := link[1], read(t, filepath.Join(root, filepath.Dir(page), link[2]))
			switch {
			case link[3] != "":
				name = link[3]
			case !strings.HasPrefix(name, "Test"):
				assert.Contains(t, cases, `"`+name+`"`, "a case of %s", tlsTable)
				name = "TestTLSByURL"
			}
			assert.Contains(t, code, "\nfunc "+name+"(", "%s: %s", page, link[2])
		}
	}
}

// TestFaultsHaveACellForEachService: each cell of the table says who holds the lock, what becomes of fences and of the queue; or that there
// is nothing to say, or nothing known, and then it links no test.
func TestFaultsHaveACellForEachService(t *testing.T) {
	noteFiles(t)
	page := read(t, filepath.Join(root, "docs/guarantees.md"))
	_, table, found := strings.Cut(page, "| Fault | Redis |")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")[2:]
	assert.Len(t, rows, 16)
	cell := regexp.MustCompile(`^(?:\[[12][Ff-][Oo]\]\([^)#]+_test\.go#Test\w+\)|[12][Ff-][Oo]¹?|n/a|\?)$`)
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "|"), "|")
		require.Len(t, cells, 9, row)
		for _, c := range cells[1:] {
			assert.Regexp(t, cell, strings.TrimSpace(c), cells[0])
		}
	}
}

package archtest

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

const tlsTable = "internal/tlstest/table.go"

var testLink = regexp.MustCompile(`\[([^]]+)\]\(([^)]+_test\.go)\)`)

// TestSecurityNamesTests looks for the tests that SECURITY.md links: by their names, or as cases of the table of TLS.
func TestSecurityNamesTests(t *testing.T) {
	noteFiles(t)
	cases := read(t, filepath.Join(root, tlsTable))
	links := testLink.FindAllStringSubmatch(read(t, filepath.Join(root, "SECURITY.md")), -1)
	assert.NotEmpty(t, links)
	for _, link := range links {
		name, code := link[1], read(t, filepath.Join(root, link[2]))
		if !strings.HasPrefix(name, "Test") {
			assert.Contains(t, cases, `"`+name+`"`, "a case of %s", tlsTable)
			name = "TestTLSByURL"
		}
		assert.Contains(t, code, "\nfunc "+name+"(", link[2])
	}
}

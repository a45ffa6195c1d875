package doctor

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a server says moves no cursor.
func TestFindingsArePrintable(t *testing.T) {
	var out strings.Builder
	Write(&out, []Finding{{Subject: "access", What: "error: \x1b[2J\u009b", Means: "\x1b]0;x\a", Mend: "\u202e"}})
	require.NotRegexp(t, "[\x1b\x07\u009b\u202e]", out.String())
	require.Contains(t, out.String(), `error: \x1b[2J\u009b`)
}

package migrating

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGuideSaysWhatIsTested: the settings in docs/migrating.md are those of the tests.
func TestGuideSaysWhatIsTested(t *testing.T) {
	guide, err := os.ReadFile("../../docs/migrating.md")
	require.NoError(t, err)
	for name, l := range libraries {
		require.Contains(t, string(guide), fmt.Sprintf("| `%s` | `%v` |", l.pattern, l.gap), name)
	}
}

package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Nodes of keys that pile up are found, with the setting that bounds how fast a server deletes them.
func TestNodesThatPileUpAreFound(t *testing.T) {
	for count, want := range map[string]Level{"12": Fine, "100000": Fine, "100001": Warning} {
		var p patient
		p.nodes(count)
		require.Len(t, p.findings, 1)
		require.Equal(t, want, p.findings[0].Level, count)
		if want == Warning {
			require.Contains(t, p.findings[0].Mend, "znode.container.maxPerMinute")
		}
	}
}

package httpguard

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/problem"
)

// The type of a problem links to its explanation.
func TestEveryProblemIsExplained(t *testing.T) {
	const file = "docs/middleware.md"
	docs, err := os.ReadFile("../../" + file)
	require.NoError(t, err)
	for _, a := range append([]answer{other, tooLarge}, answers...) {
		require.Regexp(t, "/"+regexp.QuoteMeta(file)+"#"+a.kind+"$", problem.Type(a.kind))
		require.Regexp(t, "(?m)^#+ "+a.kind+"$", string(docs))
	}
}

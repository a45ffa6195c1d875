package identity

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProcessIsNamedAfterItsHost(t *testing.T) {
	host, err := os.Hostname()
	assert.NoError(t, err)
	assert.True(t, strings.HasPrefix(Process(""), Clean(host)+"-"), Process(""))
	assert.Equal(t, Process(""), Process(""), "the same each time")
	assert.True(t, strings.HasPrefix(Process("web-1"), "web-1-"))
	assert.Len(t, Process("web-1"), len("web-1-")+suffixLength)
}

func TestInstancesOfAProcessDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		id := Instance("web")
		assert.False(t, seen[id], id)
		assert.NoError(t, Check(id))
		seen[id] = true
	}
}

func TestNames(t *testing.T) {
	for _, good := range []string{"a", "web-7f9c9d8b6-x2abz", "db_1.example.org", strings.Repeat("x", MaxName)} {
		assert.NoError(t, Check(good), good)
		assert.Equal(t, good, Clean(good))
	}
	for _, bad := range []string{"", "a b", "a:b", "a%b", "über", "a\n", strings.Repeat("x", MaxName+1)} {
		assert.Error(t, Check(bad), bad)
		assert.NoError(t, Check(Clean(bad)), bad)
	}
}

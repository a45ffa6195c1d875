package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/config"
)

// Where keys have no beginning in common, the server would show those of everybody.
func TestKeysAreLookedAtWhereTheyBeginAlike(t *testing.T) {
	for pattern, want := range map[config.KeyPattern]string{
		"": "shop:*:*", "{system}:{name}:{key}": "shop:*:*", "lock:{system}:{name}:{key}": "lock:shop:*:*", "[x]*{key}": `\[x]\**`,
		"{name}:{key}": "", "{key}": "",
	} {
		got, known := locksOf(config.Config{SystemName: "shop", RedisKey: pattern})
		require.Equal(t, want != "", known, pattern)
		if known {
			require.Equal(t, want, got)
		}
	}
}

package config_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/config"
)

// TestConfigTakesWhatTheCalculatorSays: each variable is known, and each value is allowed.
func TestConfigTakesWhatTheCalculatorSays(t *testing.T) {
	text, err := os.ReadFile("../tools/site/testdata/settings.json")
	require.NoError(t, err)
	var shops []map[string]string
	require.NoError(t, json.Unmarshal(text, &shops))
	require.NotEmpty(t, shops)
	for _, shop := range shops {
		t.Setenv("WLLOCK_SYSTEM_NAME", "order")
		t.Setenv("WLLOCK_BACKEND", "memory://")
		for name, value := range shop {
			t.Setenv(name, value)
		}
		_, err := config.FromEnv()
		require.NoError(t, err)
	}
}

package config_test

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setenv makes vars, and memory:// unless they name a backend, the only settings in the environment of the test.
func setenv(t *testing.T, vars map[string]string) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "WLLOCK_") {
			t.Setenv(name, value) // puts it back at the end
			os.Unsetenv(name)
		}
	}
	t.Setenv("WLLOCK_BACKEND", "memory://")
	for name, value := range vars {
		t.Setenv(name, value)
	}
}

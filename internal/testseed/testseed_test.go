package testseed_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testseed"
)

// recorder keeps what a test would print.
type recorder struct{ logged, fatal string }

func (r *recorder) Helper()                           {}
func (r *recorder) Logf(format string, args ...any)   { r.logged = fmt.Sprintf(format, args...) }
func (r *recorder) Fatalf(format string, args ...any) { r.fatal = fmt.Sprintf(format, args...) }

func TestLoggedSeedReplays(t *testing.T) {
	t.Setenv("WLLOCK_SEED", "")
	var r recorder
	seed := testseed.Seed(&r)
	require.Equal(t, fmt.Sprintf("replay with WLLOCK_SEED=%d", seed), r.logged)
	first := testseed.Rand(&r).Uint64()

	var name, value string
	_, err := fmt.Sscanf(r.logged, "replay with %11s=%s", &name, &value)
	require.NoError(t, err)
	t.Setenv(name, value)
	require.Equal(t, first, testseed.Rand(&r).Uint64())
}

func TestSeedsDiffer(t *testing.T) {
	t.Setenv("WLLOCK_SEED", "")
	require.NotEqual(t, testseed.Seed(t), testseed.Seed(t))
}

func TestWrongSeedIsRefused(t *testing.T) {
	t.Setenv("WLLOCK_SEED", "x")
	var r recorder
	testseed.Seed(&r)
	require.Contains(t, r.fatal, "WLLOCK_SEED")
}

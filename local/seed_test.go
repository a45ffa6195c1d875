package local_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// seed is what a random test is made from. WLLOCK_SEED replays one that failed.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := rand.Uint64()
	if given := os.Getenv("WLLOCK_SEED"); given != "" {
		var err error
		s, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err, "WLLOCK_SEED")
	}
	t.Logf("replay with WLLOCK_SEED=%d", s)
	return s
}

// scale is a tenth of full, or all of it in the long run of `make test-long`.
func scale(full int) int {
	if os.Getenv("WLLOCK_LONG") != "" {
		return full
	}
	return full / 10
}

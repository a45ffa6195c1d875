// Package testseed seeds the random tests, so that one that failed can be run again: WLLOCK_SEED=n go test ...
package testseed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
)

const variable = "WLLOCK_SEED"

// TB is the part of testing.TB that is needed here.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Seed returns WLLOCK_SEED if it is set and a new seed otherwise, and logs it.
func Seed(t TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv(variable); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
	}
	t.Logf("replay with %s=%d", variable, seed)
	return seed
}

// Rand returns a random source made from Seed. Unlike others it may be used by several goroutines. What each of them draws then
// depends on their order.
func Rand(t TB) *rand.Rand {
	t.Helper()
	return rand.New(&shared{source: rand.NewPCG(Seed(t), 0)})
}

type shared struct {
	mu     sync.Mutex
	source *rand.PCG // guarded by mu
}

func (s *shared) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source.Uint64()
}

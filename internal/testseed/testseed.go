// Package testseed seeds the random tests. One that failed says which command replays it. Such a failure counts, however often the test
// passes afterwards: with another seed it is another test.
package testseed

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/wllock/wllock/internal/race"
)

const (
	seedVariable  = "WLLOCK_SEED"
	playsVariable = "WLLOCK_PLAYS" // of a test that calls Each
)

// TB is the part of testing.TB that is needed here.
type TB interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Cleanup(f func())
}

// Seed returns WLLOCK_SEED if it is set, and a new seed otherwise. It logs the seed, and how to replay the test if that fails.
func Seed(t TB) uint64 {
	t.Helper()
	seed := first(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", replay(t, seed, ""))
		}
	})
	return seed
}

// Rand returns a random source made from Seed.
func Rand(t TB) *rand.Rand {
	t.Helper()
	return Shared(Seed(t), 0)
}

// Shared returns a random source that several goroutines may use. What each of them draws depends on their order.
func Shared(seed1, seed2 uint64) *rand.Rand {
	return rand.New(&shared{source: rand.NewPCG(seed1, seed2)})
}

// Each plays a random test n times, with a seed each, until one play fails, and then says how to replay that one. It reports whether
// these were all, so that each outcome must have been seen: with WLLOCK_PLAYS they are fewer, or more.
func Each(t interface {
	TB
	FailNow()
}, n int, play func(seed uint64),
) (all bool) {
	t.Helper()
	all = true
	if given := os.Getenv(playsVariable); given != "" {
		plays, err := strconv.ParseUint(given, 10, 31)
		if err != nil {
			t.Fatalf("%s: %v", playsVariable, err)
		}
		n, all = int(plays), false
	}
	begin := first(t)
	seed, more := begin, playsVariable+"=1 "
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", replay(t, seed, more))
		}
	})
	for range n {
		if play(seed); t.Failed() {
			t.FailNow()
		}
		seed++
	}
	seed, more = begin, "" // what fails later is a matter of all plays
	return all
}

// first returns the seed of a test, or of the first play, and logs it at once: a panic elsewhere would leave no time for more.
func first(t TB) uint64 {
	t.Helper()
	given := os.Getenv(seedVariable)
	if given == "" {
		seed := rand.Uint64()
		t.Logf("%s=%d", seedVariable, seed)
		return seed
	}
	seed, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", seedVariable, err)
	}
	t.Logf("%s=%d: %d plays in this process have not failed", seedVariable, seed, played(t.Name()))
	return seed
}

var plays = struct {
	sync.Mutex
	of map[string]int // by the test's name
}{of: map[string]int{}}

// played counts a play of the test, and returns how many there were before.
func played(test string) int {
	plays.Lock()
	defer plays.Unlock()
	plays.of[test]++
	return plays.of[test] - 1
}

// replay is the command that plays the seed until it fails, and what to expect of it.
func replay(t TB, seed uint64, more string) string {
	flags := "-count=100 -failfast"
	if race.Enabled {
		flags += " -race"
	}
	if os.Getenv("WLLOCK_LONG") != "" {
		more += "WLLOCK_LONG=1 "
	}
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"
	return fmt.Sprintf(`replay: %s=%d %sgo test %s -run '%s' %s
This plays the seed until it fails, 100 times at most. The seed decides what is drawn, but not the order in which goroutines run in parallel,
how long a server takes, or which of several ready cases a select takes. So a failure that depends on these may need many plays; if
none of 100 fails, more load beside them or a larger -count may help.`, seedVariable, seed, more, flags, pattern, folder())
}

// folder is that of the package under test, as seen from the top of the repository.
func folder() string {
	here, err := os.Getwd()
	if err != nil {
		return "."
	}
	for top := here; top != filepath.Dir(top); top = filepath.Dir(top) {
		if _, err := os.Stat(filepath.Join(top, "go.work")); err == nil {
			below, _ := filepath.Rel(top, here)
			return "./" + filepath.ToSlash(below)
		}
	}
	return "."
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

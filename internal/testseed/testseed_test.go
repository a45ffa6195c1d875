package testseed_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testseed"
)

// recorder is a test that keeps what it would print.
type recorder struct {
	name     string
	logged   []string
	failed   bool
	cleanups []func()
}

func (r *recorder) Helper()      {}
func (r *recorder) Name() string { return r.name }
func (r *recorder) Failed() bool { return r.failed }
func (r *recorder) FailNow()     { panic(r) }
func (r *recorder) Logf(format string, args ...any) {
	r.logged = append(r.logged, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Logf(format, args...)
	r.FailNow()
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// run runs the test and returns what it has printed last.
func (r *recorder) run(test func(*recorder)) string {
	func() {
		defer func() {
			if stopped := recover(); stopped != nil && stopped != r {
				panic(stopped)
			}
		}()
		test(r)
	}()
	for _, f := range r.cleanups {
		f()
	}
	return r.logged[len(r.logged)-1]
}

// given sets the variables.
func given(t *testing.T, seed, plays string) {
	t.Setenv("WLLOCK_SEED", seed)
	t.Setenv("WLLOCK_PLAYS", plays)
}

func TestLoggedSeedReplays(t *testing.T) {
	given(t, "", "")
	var first, again, third uint64
	draw := func(drawn *uint64) func(*recorder) {
		return func(r *recorder) {
			*drawn = testseed.Rand(r).Uint64()
			r.failed = true
		}
	}
	last := (&recorder{name: "TestX/a(b)"}).run(draw(&first))
	require.Contains(t, last, `-run '^TestX$/^a\(b\)$' ./internal/testseed`)
	require.NotContains(t, last, "WLLOCK_PLAYS")
	var seed uint64
	_, err := fmt.Sscanf(last, "replay: WLLOCK_SEED=%d", &seed)
	require.NoError(t, err)

	given(t, fmt.Sprint(seed), "")
	replayed := func(drawn *uint64) string {
		r := &recorder{name: "TestX"}
		r.run(draw(drawn))
		return r.logged[0]
	}
	require.Contains(t, replayed(&again), ": 0 plays in this process have not failed")
	require.Contains(t, replayed(&third), ": 1 plays in this process have not failed")
	require.Equal(t, []uint64{first, first}, []uint64{again, third})
}

func TestSeedIsLoggedAtOnce(t *testing.T) {
	given(t, "", "")
	r := &recorder{}
	seed := testseed.Seed(r)
	require.Equal(t, []string{fmt.Sprint("WLLOCK_SEED=", seed)}, r.logged)
	require.Equal(t, r.logged[0], r.run(func(*recorder) {}), "a test that passes needs no replay")
	require.NotEqual(t, seed, testseed.Seed(r))
}

func TestEachPlayHasASeed(t *testing.T) {
	for _, one := range []struct {
		name, plays string
		fails       uint64
		played      int
		says        string
	}{
		{"all pass", "", 0, 5, "WLLOCK_SEED=100"},
		{"one fails", "", 102, 3, "replay: WLLOCK_SEED=102 WLLOCK_PLAYS=1 go test"},
		{"what all have shown is wrong", "", 999, 5, "replay: WLLOCK_SEED=100 go test"},
		{"a replay", "1", 0, 1, "WLLOCK_SEED=100"},
	} {
		t.Run(one.name, func(t *testing.T) {
			given(t, "100", one.plays)
			var played []uint64
			says := (&recorder{}).run(func(r *recorder) {
				all := testseed.Each(r, 5, func(seed uint64) {
					played = append(played, seed)
					r.failed = seed == one.fails
				})
				require.Equal(t, one.plays == "", all)
				r.failed = one.fails == 999
			})
			require.Equal(t, []uint64{100, 101, 102, 103, 104}[:one.played], played)
			require.True(t, strings.HasPrefix(says, one.says), says)
		})
	}
}

func TestWrongVariablesAreRefused(t *testing.T) {
	for name, set := range map[string][2]string{"WLLOCK_SEED": {"x", ""}, "WLLOCK_PLAYS": {"", "-1"}} {
		given(t, set[0], set[1])
		says := (&recorder{}).run(func(r *recorder) { testseed.Each(r, 1, func(uint64) {}) })
		require.Contains(t, says, name+": strconv")
	}
}

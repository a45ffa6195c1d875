package driver

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testseed"
)

// inLine is a request with its number.
type inLine struct {
	Asked
	n int
}

// lineOf is a queue of these: x writes, s reads, a digit is the limit of a permit.
func lineOf(text string) (q []inLine) {
	for i, c := range text {
		q = append(q, inLine{Asked{c != 'x', max(strings.IndexRune("0123456789", c), 0)}, i})
	}
	return q
}

func TestAdmitted(t *testing.T) {
	for line, want := range map[string]int{
		"": 0, "x": 1, "xs": 1, "sx": 1, "ssx2": 2, "s22": 2, "22222": 2, "3333": 3, "13": 2, "213s": 1, "2s2s": 2, "2x2": 1, "x22": 1, "1s": 2,
	} {
		require.Equal(t, want, Admitted(lineOf(line), false), line)
	}
	for line, want := range map[string]int{"x": 1, "xs": 2, "x22": 2, "xsx": 2, "x1": 1, "s22": 2} {
		require.Equal(t, want, Admitted(lineOf(line), true), line)
	}
}

// A waiter is not admitted before one of those has gone that it watches, whoever else goes. In every second queue the first is a writer that
// has downgraded its lease.
func TestWaitersWatchWhatCanAdmitThem(t *testing.T) {
	rnd := testseed.Rand(t)
	for range 20_000 {
		downgraded := rnd.IntN(2) == 0
		line := []byte("x")
		for range 1 + rnd.IntN(9) {
			line = append(line, "xss1223345"[rnd.IntN(10)])
		}
		q := lineOf(string(line))
		if !downgraded {
			q = q[1:]
		}
		for i := Admitted(q, downgraded); i < len(q); i++ {
			requireWatched(t, rnd, q, i, downgraded)
		}
	}
}

func requireWatched(t *testing.T, rnd *rand.Rand, q []inLine, i int, downgraded bool) {
	t.Helper()
	watched := KeepsOut(q, i, downgraded)
	require.NotEmpty(t, watched, "%v at %d", q, i)
	if !q[i].Shared {
		require.Equal(t, q[i-1:i], watched) // which watches those before it
		return
	}
	rest := slices.DeleteFunc(slices.Clone(q[:i+1]), func(r inLine) bool {
		return r.n != q[i].n && !slices.Contains(watched, r) && rnd.IntN(2) == 0
	})
	downgraded = downgraded && rest[0].n == q[0].n
	require.Less(t, Admitted(rest, downgraded), len(rest), "%v at %d, which watches %v, is admitted in %v", q, i, watched, rest)
}

// What each in the line watches keeps it out, and is little: so a release wakes few.
func TestKeepsOut(t *testing.T) {
	for line, want := range map[string][]int{
		"xx": {0}, "xxx": {1}, "sx": {0}, "xs": {0}, "xss": {0}, "xsxs": {2}, "x2": {0}, "22x": {1},
		"222": {0, 1}, "2222": {1, 2}, "22222": {2, 3}, "ss2": {0, 1}, "sss2": {1, 2}, "1222s": {1, 2, 3},
	} {
		q := lineOf(line)
		var got []int
		for _, r := range KeepsOut(q, len(q)-1, false) {
			got = append(got, r.n)
		}
		require.Equal(t, want, got, line)
	}
}

package live

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// drawn returns the rows of a screen.
func drawn(t *testing.T, width int, keys ...string) []string {
	t.Helper()
	v := Frame{Complete: true}
	for _, key := range keys {
		i := distributed.Inspection{Key: key, Holders: []distributed.Holder{{Instance: "checkout-7d4b9c-x2x7p-abcdefghij"}}}
		v.Locks = append(v.Locks, &Lock{Inspection: i, Name: key})
	}
	var out strings.Builder
	require.NoError(t, screen{title: "shop:*"}.draw(&out, v, width, 10, time.Now()))
	var rows []string
	for line := range strings.SplitSeq(out.String(), "\r\n") {
		line = strings.TrimSuffix(line, restOf)
		require.LessOrEqual(t, len([]rune(strings.TrimPrefix(line, home))), width)
		rows = append(rows, line)
	}
	return rows[headLines : headLines+len(keys)]
}

// Each lock can be told from the others: the head says what all have in common, and holders are cut before keys.
func TestScreenShowsTheKeys(t *testing.T) {
	for width, want := range map[int]string{
		80: "checkout-7d4b9c-x2x7p-a…  product:1000000002", 200: "checkout-7d4b9c-x2x7p-abcdefghij  product:1000000002", 60: "check…  produ…1000000002",
	} {
		require.True(t, strings.HasSuffix(drawn(t, width, "shop:product:1000000001", "shop:product:1000000002")[1], want), width)
	}
}

// Keys are hashed on the screen where services log them so, and the filter is for what is seen.
func TestScreenShowsKeysAsTheyArePrinted(t *testing.T) {
	hash := func(full string) string { return strings.ReplaceAll(full, "4711", "#64") }
	r := newReader(nil, Options{Shown: hash, Filter: regexp.MustCompile("#64$")})
	r.note([]distributed.Inspection{{Key: "shop:account:4711"}, {Key: "shop:account:4712"}}, nil, time.Now())
	var out strings.Builder
	require.NoError(t, screen{title: "shop:*"}.draw(&out, r.first(5, time.Now()), 80, 10, time.Now()))
	require.Contains(t, out.String(), "account:#64")
	require.NotContains(t, out.String(), "471")
}

func TestLongKeysAreCutInTheMiddle(t *testing.T) {
	long := "shop:product:tenant-17/warehouse-" + strings.Repeat("x", 50)
	rows := drawn(t, 80, long+"1", long+"2")
	require.Contains(t, rows[1], "check…  product:te")
	require.True(t, strings.HasSuffix(rows[1], "xx2"), rows[1])
	for width := range 12 {
		require.LessOrEqual(t, len([]rune(cutMiddle("0123456789", width))), width)
	}
}

package show

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 1500 * time.Microsecond: "1ms", 59_990 * time.Millisecond: "59.9s", time.Minute: "1m00s",
		time.Hour - time.Second: "59m59s", 25 * time.Hour: "1d01h", 90 * time.Minute: "1h30m",
	} {
		require.Equal(t, want, Short(d))
	}
}

func TestHost(t *testing.T) {
	for instance, want := range map[string]string{
		"web-1-abcdefghij": "web-1", "web-1-abcdefghij-2": "web-1", "ABCDEFGHIJKLMNOP": "ABCDEFGHIJKLMNOP", "": "",
	} {
		require.Equal(t, want, Host(instance))
	}
}

// who is what Who writes of a lock.
func who(i distributed.Inspection) string {
	var out strings.Builder
	Who(&out, i, distributed.Runs{}, time.Now())
	return out.String()
}

// What others have written does not reach the terminal's control.
func TestWhoIsPrintable(t *testing.T) {
	evil := "a\x1b[2J\nb"
	out := who(distributed.Inspection{
		Key: evil, Holders: []distributed.Holder{{Instance: evil, Left: -1}}, MoreHolders: 2, Fence: 7,
		Waiters: []distributed.Waiter{{Instance: evil}}, MoreWaiters: 3, Broken: &distributed.Breaking{By: evil, Reason: evil, Holder: evil},
	})
	require.NotContains(t, out, "\x1b")
	for _, told := range []string{"never expires", "and 2 more holders", "waiting  4", "and 3 more", "7 at most"} {
		require.Contains(t, out, told)
	}
	require.Equal(t, 9, strings.Count(out, "\n"), out)
}

// A foreigner has no name, and what is free has no holder.
func TestTable(t *testing.T) {
	var out strings.Builder
	now := time.Now()
	require.NoError(t, Table(&out, []distributed.Inspection{
		{Key: "a:b:1", Foreign: true, Fence: 7, Holders: []distributed.Holder{{Left: time.Minute}}},
		{Key: "a:b:2", Since: now.Add(-time.Hour), Holders: []distributed.Holder{{Instance: "web"}}, MoreWaiters: 4},
	}, now, 0))
	lines := strings.Split(out.String(), "\n")
	require.Equal(t, []string{"a:b:1", "-", "-", "1m00s", "0", "(not", "wllock)", "-"}, strings.Fields(lines[1]))
	require.Equal(t, []string{"a:b:2", "exclusive", "1h00m", "-", "4", "web", "0"}, strings.Fields(lines[2]))
}

// What does not fit into a terminal takes two lines, and no column is broken.
func TestNarrowTable(t *testing.T) {
	now := time.Now()
	all := []distributed.Inspection{{
		Key: "shop:report:" + strings.Repeat("x", 50), Since: now.Add(-time.Hour), Fence: 1795343918618400999,
		Holders: []distributed.Holder{{Instance: "web-1-4711-report.sh-oesauayna7", Left: 4700 * time.Millisecond}},
	}}
	table := func(width int) string {
		var out strings.Builder
		require.NoError(t, Table(&out, all, now, width))
		return out.String()
	}
	whole := table(0)
	widest := len(strings.Split(whole, "\n")[1])
	require.Equal(t, whole, table(widest))
	for _, width := range []int{80, widest - 1} {
		require.Equal(t, all[0].Key+"\n  exclusive, held 1h00m, lease 4.7s, 0 waiting, web-1-4711-report.sh-oesauayna7\n", table(width))
	}
}

// The last fence that wllock gave is of the holder before.
func TestAForeignerHasNoFence(t *testing.T) {
	i := distributed.Inspection{Key: "a:b:1", Foreign: true, Fence: 7, Holders: []distributed.Holder{{Left: time.Minute}}}
	require.NotContains(t, who(i), "fence")
	require.Empty(t, NewLock(i).Fence)
}

func TestPermitsAreNotReaders(t *testing.T) {
	i := distributed.Inspection{
		Key: "order:partner:acme", Mode: distributed.Shared,
		Holders: []distributed.Holder{{Instance: "a-aaaaaaaaaa#1"}, {Instance: "b-aaaaaaaaaa#1"}},
		Waiters: []distributed.Waiter{{Instance: "c-aaaaaaaaaa#2", Mode: distributed.Shared, Limit: 2}, {Instance: "d-aaaaaaaaaa#1", Mode: distributed.Shared}},
	}
	require.Equal(t, 2, NewLock(i).Waiters[0].Permits)
	for _, told := range []string{
		"is held, 2 of 2 permits\n", "a-aaaaaaaaaa#1, on a\n", "1. c-aaaaaaaaaa#2, on c, for one of 2 permits\n", "2. d-aaaaaaaaaa#1, on d, for a permit\n",
	} {
		require.Contains(t, who(i), told)
	}
	i.Waiters = nil
	require.Contains(t, who(i), "is held, permits\n")
	i.Holders[0].Instance = "a-aaaaaaaaaa"
	require.Contains(t, who(i), "is held, shared\n")
}

// What could move the cursor, and blanks that make two columns, are quoted.
func TestTextKeepsItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"10:00 am": "10:00 am", "größe": "größe", "bad\xff\xfe": `"bad\xff\xfe"`, "a  exclusive  9h": `"a  exclusive  9h"`,
		"right\u202eleft": `"right\u202eleft"`, "c1\u009b": `"c1\u009b"`,
	} {
		require.Equal(t, want, Text(text))
	}
}

// An error with a server's words in it keeps its lines, moves no cursor, and none of its lines passes for one of ours.
func TestLinesKeepTheirPlace(t *testing.T) {
	require.Equal(t, "want \"1  2\":\n  \\x1b]0;owned\\a \\x9b \\u009b \\r.\n  wllock: all is well\n",
		Lines("want \"1  2\":\n  \x1b]0;owned\a \x9b \u009b \r.\nwllock: all is well\n"))
}

// One byte that is no text once undid the columns of all lines behind it.
func TestTableOfHostileKeys(t *testing.T) {
	var out strings.Builder
	require.NoError(t, Table(&out, []distributed.Inspection{{Key: "a:b:\xff"}, {Key: "a:b:2"}}, time.Now(), 0))
	require.NotContains(t, out.String(), "\t")
	require.NotContains(t, out.String(), "\xff")
}

func TestJSONIsPrintable(t *testing.T) {
	var out strings.Builder
	require.NoError(t, JSON(&out, map[string]string{"a": "\u009b2J \u202e <größe>"}))
	require.Equal(t, "{\n  \"a\": \"\\u009b2J \\u202e <größe>\"\n}\n", out.String())
}

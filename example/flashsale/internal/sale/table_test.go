package sale

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	const want = `
round     sold  oversold  sold out  refused  failed  orders/s  requests  per order  p50 wait  p99 wait
no lock    812       712       188        0       0      3271         -          -         -         -
one tier   100         0       900        0       0       745      2000      20.00  101.2 ms  187.0 ms
wllock     100         0       104      796       0       759        12       0.12    0.0 ms   49.1 ms
`
	var got strings.Builder
	printTable(&got, roundColumns, []Report{
		{Round: "no lock", Sold: 812, Oversold: 712, Counts: Counts{SoldOut: 188}, OrdersPerSecond: 3271.4},
		{Round: "one tier", Sold: 100, Counts: Counts{SoldOut: 900, Requests: 2000}, OrdersPerSecond: 745, RequestsPerOrder: 20,
			P50Wait: 101.2, P99Wait: 187, way: Rounds[1]},
		{Round: "wllock", Sold: 100, Counts: Counts{SoldOut: 104, Refused: 790, Away: 6, Requests: 12}, OrdersPerSecond: 758.6, RequestsPerOrder: 0.12,
			P50Wait: 0.04, P99Wait: 49.1, way: Rounds[2]},
	}, legend)
	assert.Equal(t, strings.TrimPrefix(want, "\n")+legend, got.String())
}

// The quick start shows a table printed by this program, with the current columns.
func TestQuickStartTable(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/quickstart.md")
	require.NoError(t, err)
	var table strings.Builder
	printTable(&table, roundColumns, nil, legend)
	titles, _, _ := strings.Cut(table.String(), "\n")
	found := slices.ContainsFunc(strings.Split(string(page), "\n"), func(line string) bool {
		return slices.Equal(strings.Fields(line), strings.Fields(titles))
	})
	assert.True(t, found, "no table with the titles %q", titles)
	for _, r := range Rounds {
		assert.Contains(t, string(page), "\n"+r.Title+" ", "its line")
	}
}

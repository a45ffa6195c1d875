package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/load"
)

func TestBatchesAreComparedWithOneRowAndWithOneOrderPerHold(t *testing.T) {
	table := Table{Scenario: "sale-postgres-4x64", Link: load.Loopback, Sale: true, Rows: []Row{
		row("batch-64", contender.Subject, round(30_000, time.Millisecond)),
		row(contender.Guard, contender.Subject, round(2000, 20*time.Millisecond)),
		row("statement", contender.Rival, round(3000, 20*time.Millisecond)),
		row(contender.ManyRows, contender.Rival, round(6000, 20*time.Millisecond)),
	}}
	got := Judge([]Table{table})
	require.Len(t, got, 3)
	for i, want := range []float64{10, 15, 0.05} {
		assert.InDelta(t, want, got[i].Got, 1e-9)
		assert.True(t, got[i].Met)
	}
	table.Rows = table.Rows[:1]
	assert.Empty(t, Judge([]Table{table}), "nothing to compare with")
}

func TestBooksThatAreWrongAreShown(t *testing.T) {
	r := NewRow(contender.Contender{Name: "liar"}, []load.Round{{Figures: load.Figures{Violations: 2}}})
	text := Markdown(Report{Tables: []Table{{Sale: true, Rows: []Row{r}}}})
	assert.Contains(t, text, "pieces amiss")
	assert.Contains(t, text, "**liar: 2 pieces were sold twice")
}

package sale

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// newTask sells ten pieces without a lock, the only round that needs no shared lock service.
func newTask(t *testing.T) (task Task, office *sqlshop.Shop) {
	t.Helper()
	office, err := sqlshop.Open(sqlshop.Temporary, 1, nil)
	require.NoError(t, err)
	t.Cleanup(office.Close)
	require.NoError(t, office.Create(t.Context()))
	require.NoError(t, office.Stock(t.Context(), Rounds[0].Title, 10))
	return Task{
		Settings: Settings{Backend: MemoryURL, Instances: 3, Buyers: 20, Wait: time.Minute, Ramp: 10 * time.Millisecond},
		System:   "test", Stalls: []Stall{{Way: Rounds[0].Title, URL: office.URL}}, Pool: 1, Stride: 2,
	}, office
}

func TestProcs(t *testing.T) {
	task, office := newTask(t)
	ready := 0
	seen, err := playTogether(t.Context(), task, func() { ready++ })
	require.NoError(t, err)
	assert.Equal(t, 1, ready)
	assert.Zero(t, seen.Failed, seen.Failure)
	assert.Equal(t, 3*20, seen.Answered(), "every instance is served by exactly one process")
	assert.Len(t, seen.Answers, seen.Bought)

	a, err := office.Audit(t.Context(), Rounds[0].Title)
	require.NoError(t, err)
	assert.Equal(t, seen.Bought, a.Sold)
}

func TestProcsReportTheirFailure(t *testing.T) {
	task, _ := newTask(t)
	task.Backend, task.Stalls[0].Way = "zk://", Rounds[2].Title
	_, err := playTogether(t.Context(), task, func() {})
	assert.ErrorContains(t, err, "zklock")
}

func TestProcsEndWithTheirParent(t *testing.T) {
	task, _ := newTask(t)
	task.Ramp = 24 * time.Hour // much longer than any test may take
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := playTogether(ctx, task, func() {})
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

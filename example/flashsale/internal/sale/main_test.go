package sale

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/example/flashsale/internal/stores"
	"github.com/wllock/wllock/internal/dbtest"
)

// program is the one with everything, but that its page is none.
var program = Program{Stores: stores.All, Allowed: stores.Allowed, Serve: func(context.Context, Settings, io.Writer) error { return nil }}

// TestMain makes the test binary a child when the program starts it as one.
func TestMain(m *testing.M) {
	if IsChild() {
		program.Main()
	}
	goleak.VerifyTestMain(dbtest.Main(m))
}

// longLease is for sales over servers: the lease of a buyer on a machine that stands still for seconds is not to end.
const longLease = "-ttl 30s "

// play runs the program and returns its exit status and what it wrote.
func play(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = program.Run(ctx, args, &out, &errs)
	return status, out.String(), errs.String()
}

func TestWllockSellsEachPieceOnce(t *testing.T) {
	status, stdout, stderr := play(t.Context(), strings.Fields(longLease+"-wait 1m -json -buyers 60 -stock 20 -threshold 10 -ramp 20ms")...)
	require.Equal(t, StatusOK, status, stderr)

	var got struct {
		Rounds  []Report `json:"rounds"`
		Verdict string   `json:"verdict"`
		OK      bool     `json:"ok"`
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Len(t, got.Rounds, 4)
	assert.True(t, got.OK)
	for _, r := range got.Rounds {
		assert.Zero(t, r.Failed, "%s: %s", r.Round, r.Failure)
		assert.Equal(t, 4*60, r.Sold+r.SoldOut+r.Refused, "%s: each buyer gets one answer", r.Round)
	}
	noLock, oneTier, wllock, batches := got.Rounds[0], got.Rounds[1], got.Rounds[2], got.Rounds[3]
	assert.Positive(t, noLock.Oversold, "a round without a lock that does not oversell shows nothing")
	assert.Equal(t, 20, oneTier.Sold)
	assert.Equal(t, 20, wllock.Sold)
	assert.Equal(t, 20, batches.Sold)
	assert.Zero(t, wllock.FenceViolations+batches.FenceViolations)
	assert.Less(t, wllock.Requests, oneTier.Requests)
	assert.Contains(t, got.Verdict, fmt.Sprintf("wllock with %d requests", wllock.Requests))
}

func TestTheQueueRefusesBeyondItsThreshold(t *testing.T) {
	status, stdout, stderr := play(t.Context(), strings.Fields(longLease+"-wait 1m -json -instances 1 -buyers 50 -stock 40 -threshold 5 -ramp 0s")...)
	require.Equal(t, StatusOK, status, stderr)
	var got struct {
		Rounds []Report `json:"rounds"`
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	assert.Positive(t, got.Rounds[2].Refused)
	assert.Less(t, got.Rounds[2].Sold, 40, "refused buyers bought nothing")
}

func TestPlainLinesAndATable(t *testing.T) {
	status, stdout, stderr := play(t.Context(), strings.Fields(longLease+"-wait 1m -instances 2 -buyers 5 -stock 3 -ramp 0s")...)
	require.Equal(t, StatusOK, status, stderr)
	assert.Equal(t, 4, strings.Count(stderr, "10 of 10 buyers answered"))
	assert.NotContains(t, stderr, "\r", "no terminal, no bar that moves")
	assert.Contains(t, stdout, "per order")
	assert.Contains(t, stdout, "took 1ms longer than it does here")
	assert.Contains(t, stdout, "\n\nVerdict: no lock ", "the last thing a user reads")
}

func TestInterrupted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, flags := range [][]string{nil, {"-db", "sqlite"}} {
		status, _, stderr := play(ctx, flags...)
		assert.Equal(t, StatusInterrupted, status)
		assert.Contains(t, stderr, "interrupted")
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "flashsale-*"))
	require.NoError(t, err)
	assert.Empty(t, left, "the database is removed")
}

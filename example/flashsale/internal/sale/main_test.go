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

// rounds plays the four rounds with those flags, and returns what it reports.
func rounds(t *testing.T, flags string) (all []Report, verdict string) {
	t.Helper()
	status, stdout, stderr := play(t.Context(), strings.Fields(longLease+"-wait 1m -json "+flags)...)
	require.Equal(t, StatusOK, status, stderr)
	var got struct {
		Rounds  []Report `json:"rounds"`
		Verdict string   `json:"verdict"`
		OK      bool     `json:"ok"`
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Len(t, got.Rounds, 4)
	assert.True(t, got.OK)
	return got.Rounds, got.Verdict
}

func TestWllockSellsEachPieceOnce(t *testing.T) {
	all, verdict := rounds(t, "-buyers 60 -stock 20 -threshold 10 -ramp 20ms")
	for _, r := range all {
		assert.Zero(t, r.Failed, "%s: %s", r.Round, r.Failure)
		assert.Equal(t, 4*60, r.Sold+r.SoldOut+r.Refused, "%s: each buyer gets one answer", r.Round)
	}
	noLock, oneTier, wllock, batches := all[0], all[1], all[2], all[3]
	assert.Positive(t, noLock.Oversold, "a round without a lock that does not oversell shows nothing")
	assert.Equal(t, 20, oneTier.Sold)
	assert.Equal(t, 20, wllock.Sold)
	assert.Equal(t, 20, batches.Sold)
	assert.Zero(t, wllock.FenceViolations+batches.FenceViolations)
	assert.Less(t, wllock.Requests, oneTier.Requests)
	assert.Contains(t, verdict, fmt.Sprintf("wllock with %d requests", wllock.Requests))
}

func TestTheQueueRefusesBeyondItsThreshold(t *testing.T) {
	all, _ := rounds(t, "-instances 1 -buyers 50 -stock 40 -threshold 5 -ramp 0s")
	assert.Positive(t, all[2].Refused)
	assert.Less(t, all[2].Sold, 40, "refused buyers bought nothing")
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

package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var small = load{
	hold: 20 * time.Millisecond, times: 10, patience: time.Second, warmUp: 1500 * time.Millisecond, measured: 3 * time.Second,
	pause: time.Sleep,
}

// ofLoad returns the result of a load with a threshold. In a bubble only holds and waits take time.
func ofLoad(t *testing.T, l load, of trial) (p point) {
	synctest.Test(t, func(t *testing.T) {
		network := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
		var err error
		p, err = measure(t.Context(), l, of, network, network.dial)
		require.NoError(t, err)
	})
	return p
}

// pipes is a network in memory, since another one would not work in a bubble. Its deadlines are exact: one that was reset ends no read.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.accepted <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Net: "pipe", Name: "pipe"} }

func ofSmall(t *testing.T, of trial) point {
	p := ofLoad(t, small, of)
	assert.Zero(t, p.failures, "5xx")
	assert.Zero(t, p.broken)
	assert.Equal(t, small.hold, p.holds.mean())
	assert.InDelta(t, small.rate()*small.measured.Seconds(), p.good+p.refused+p.timedOut, 150, "all are answered, or leave")
	assert.NotEmpty(t, p.bare)
	return p
}

// capacity is the number of orders that fit into the measured time, one at a time.
var capacity = float64(small.measured / small.hold)

func TestWithAThresholdTheGoodputStays(t *testing.T) {
	for _, threshold := range []int{1, 5, 40} {
		p := ofSmall(t, trial{threshold: threshold})
		assert.GreaterOrEqual(t, float64(p.good), .97*capacity, "threshold %d", threshold)
		assert.Zero(t, p.timedOut)
		assert.Zero(t, p.wasted)
		assert.Positive(t, p.refused)
		assert.LessOrEqual(t, p.server.quantile(1), time.Duration(threshold+1)*small.hold, "threshold %d", threshold)
		assert.Greater(t, p.server.quantile(.99), time.Duration(threshold-1)*small.hold, "the line is used")
	}
}

// With threshold 0 the lock is idle until the next client arrives: one eleventh of the time.
func TestThresholdZeroWaitsForTheNext(t *testing.T) {
	p := ofSmall(t, trial{})
	assert.InDelta(t, 10./11, p.busy(small), .04)
	assert.InDelta(t, 10./11*capacity, float64(p.good), .04*capacity)
	assert.LessOrEqual(t, p.server.quantile(1), small.hold)
}

func TestWithoutAThresholdTheGoodputCollapses(t *testing.T) {
	p := ofSmall(t, trial{threshold: wllock.Unlimited})
	assert.Less(t, float64(p.good), .2*capacity)
	assert.Greater(t, p.timedOut, p.good)
	assert.Greater(t, p.wasted, p.good, "the lock is used for clients that have left")
	assert.Greater(t, p.busy(small), .9)
}

// Batches serve ten times the capacity of one by one: nobody is refused, and nobody waits longer than for two holds.
func TestBatchesGrowWithTheLoad(t *testing.T) {
	p := ofSmall(t, trial{threshold: 50, batches: true})
	assert.Greater(t, float64(p.good), 9*capacity)
	assert.Zero(t, p.refused)
	assert.Zero(t, p.timedOut)
	assert.Zero(t, p.wasted)
	assert.LessOrEqual(t, p.server.quantile(1), 2*small.hold)
	assert.Equal(t, 2*small.hold, p.bound())
}

func TestTheStoreRefusesAHolderThatWasOvertaken(t *testing.T) {
	var s store
	assert.NoError(t, s.write(2, 1))
	assert.ErrorIs(t, s.write(1, 1), errOvertaken)
	assert.ErrorIs(t, s.write(2, 1), errOvertaken, "a hold writes once")
	assert.NoError(t, s.write(3, 5))
	assert.Equal(t, 6, s.orders)
}

// The whole program, over the loopback and in real time: it ends and prints everything.
func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plot.svg")
	var out, errs bytes.Buffer
	short := load{
		hold: 2 * time.Millisecond, times: 3, patience: 100 * time.Millisecond,
		warmUp: 100 * time.Millisecond, measured: 150 * time.Millisecond, pause: pause,
	}
	require.Zero(t, run(t.Context(), []string{"-svg", file}, short, &out, &errs), errs.String())
	for _, of := range trials {
		require.Equal(t, 2, strings.Count(out.String(), "\n| "+of.String()+" |"), out.String())
	}
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		_, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
	}
	for _, of := range trials {
		require.Contains(t, string(svg), ">"+of.String()+"<")
	}
}

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{{"-speed"}, {"now"}, {"-svg"}} {
		var errs bytes.Buffer
		assert.Equal(t, 2, run(t.Context(), args, full, io.Discard, &errs), args)
		assert.NotEmpty(t, errs.String())
	}
	var errs bytes.Buffer
	assert.Equal(t, 1, run(t.Context(), []string{"-svg", filepath.Join(t.TempDir(), "no", "plot.svg")}, full, io.Discard, &errs))
	assert.Contains(t, errs.String(), "plot.svg")
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Equal(t, 1, run(ctx, nil, full, io.Discard, io.Discard))
}

func TestQuantiles(t *testing.T) {
	var none times
	assert.Zero(t, none.quantile(.99))
	assert.Zero(t, none.mean())
	all := times{4, 1, 3, 2}
	assert.EqualValues(t, 1, all.quantile(0))
	assert.EqualValues(t, 2, all.quantile(.5))
	assert.EqualValues(t, 4, all.quantile(.99))
	assert.EqualValues(t, 2, all.mean())
	assert.Equal(t, [2]float64{}, thirds(nil))
	assert.Equal(t, [2]float64{1.5, 5.5}, thirds([]float64{1, 2, 3, 4, 5, 6}))
}

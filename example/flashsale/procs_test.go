package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testscope"
)

// procsTask sells without a lock, the only round that needs no shared lock service.
func procsTask(file string) task {
	s := settings{Instances: 3, Buyers: 20, Procs: 2, Wait: time.Second, Ramp: 10 * time.Millisecond}
	return task{Settings: s, Backend: memoryURL, System: "test", Database: file, Round: 0}
}

func TestProcs(t *testing.T) {
	shop, file := newShop(t, 1)
	require.NoError(t, shop.Stock(t.Context(), rounds[0].id, 10))
	m := new(meter)
	seen, err := runProcs(t.Context(), procsTask(file), m)
	require.NoError(t, err)
	assert.Zero(t, seen.Failed, seen.Failure)
	assert.Equal(t, 3*20, seen.answered(), "every instance is served by exactly one process")
	assert.EqualValues(t, seen.answered(), m.answered.Load())
	assert.EqualValues(t, seen.Bought, m.bought.Load())

	a, err := shop.Audit(t.Context(), rounds[0].id)
	require.NoError(t, err)
	assert.Equal(t, seen.Bought, a.Sold)
}

func TestProcsReportTheirFailure(t *testing.T) {
	_, file := newShop(t, 1)
	work := procsTask(file)
	for backend, want := range map[string]string{"gopher://nowhere": `no lock service for "gopher"`, "zk://": "zklock", "redis://%": "redislock"} {
		work.Backend = backend
		_, err := runProcs(t.Context(), work, new(meter))
		assert.ErrorContains(t, err, want)
	}
}

func TestProcsEndWithTheirParent(t *testing.T) {
	shop, file := newShop(t, 1)
	require.NoError(t, shop.Stock(t.Context(), rounds[0].id, 10))
	work := procsTask(file)
	work.Settings.Ramp = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := runProcs(ctx, work, new(meter))
	assert.Error(t, err)
	testscope.InTime(t, time.Since(began), 5*time.Second, "the end")
}

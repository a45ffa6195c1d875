package load

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/server"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/zktest"
)

// everywhere has all stores.
func everywhere(t *testing.T) Machine {
	t.Helper()
	needRedis(t)
	stores := []server.Store{server.Redis, server.Redlock, server.Memory}
	if err := zktest.Missing(); err == nil {
		stores = append(stores, server.ZooKeeper)
	} else if zktest.Required() {
		t.Fatal(err)
	}
	return with(t, stores...)
}

func TestEveryContenderIsCountedRightAndExcludes(t *testing.T) {
	testscope.Long(t, "plays whole sales or runs")
	m := everywhere(t)
	s := hot
	s.Fences = true
	for _, c := range contender.All() {
		if m.Stores[c.Store] == nil || c.Role == contender.Floor || c.Group == contender.OverPermits || c.Group == contender.OverRedlock && c.Variant { // floors have a test of their own, variants of OverRedis are the same
			continue
		}
		name := c.Group.String() + "/" + c.Name
		require.NoError(t, m.CheckCommands(t.Context(), c), name)
		r := runUntilSome(t, m, c, s)
		assert.Zero(t, r.Violations, name)
		assert.Zero(t, r.Failed, "%s: %s", name, r.Failure)
		assert.Positive(t, r.Ops, name)
		assert.Zero(t, r.FencesFallen, name)
		assert.Equal(t, c.Fenced, r.Fences > 0, name)
		if c.Store != server.Memory && c.Role != contender.Limit {
			assert.Positive(t, r.CommandsPerOp, name)
		}
	}
}

// runUntilSome repeats a short round with longer ones while nobody got a turn, as happens on a busy machine.
func runUntilSome(t *testing.T, m Machine, c contender.Contender, s Scenario) Round {
	t.Helper()
	for d := 50 * time.Millisecond; ; d *= 4 {
		r, err := m.Run(t.Context(), c, s, Loopback, d)
		require.NoError(t, err, c.Name)
		if r.Ops > 0 || r.Violations > 0 || d > 3*time.Second {
			return r
		}
	}
}

func TestFencesThatDoNotGrowAreFound(t *testing.T) {
	m := with(t, server.Memory)
	c := fake(new(sync.Mutex)) // its context carries no fence
	c.Store, c.Fenced = server.Memory, true
	s := hot
	s.Fences = true
	r, err := m.Run(t.Context(), c, s, Loopback, 50*time.Millisecond)
	require.NoError(t, err)
	assert.Positive(t, r.Fences)
	assert.Equal(t, r.Fences, r.FencesFallen)

	one := cell{}
	assert.True(t, one.grew(7))
	assert.False(t, one.grew(7))
	assert.False(t, one.grew(6))
	assert.True(t, one.grew(8))
}

// readWrite is a lock that admits readers together, and writers as well if it is broken.
func readWrite(broken bool) contender.Instance {
	var l sync.RWMutex
	return contender.Instance{Do: func(ctx context.Context, _ string, f func(context.Context) error) error {
		if !broken {
			l.Lock()
			defer l.Unlock()
		}
		return f(ctx)
	}, DoShared: func(ctx context.Context, _ string, f func(context.Context) error) error {
		l.RLock()
		defer l.RUnlock()
		return f(ctx)
	}}
}

func TestPermitHoldersAdmitNoMore(t *testing.T) {
	needRedis(t)
	m := with(t, server.Redis, server.Memory)
	for _, s := range permits() {
		s.Work /= 5
		for _, c := range contender.All() {
			if c.Group != contender.OverPermits || s.Workers == 3 {
				continue
			}
			r := runUntilSome(t, m, c, s)
			assert.Zero(t, r.Violations, c.Name)
			assert.Zero(t, r.Failed, "%s: %s", c.Name, r.Failure)
			assert.Positive(t, r.Wait.Count, c.Name) // of few calls the median may be above that of the latency: those under way at the end have waited
		}
	}
}

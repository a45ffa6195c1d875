package load

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/server"
	"github.com/wllock/wllock/internal/testproc"
)

type noLock struct{}

func (noLock) Lock()   {}
func (noLock) Unlock() {}

// fake is a contender whose instances share one mutex, or none.
func fake(l sync.Locker) contender.Contender {
	return instances(contender.Instance{Do: func(ctx context.Context, _ string, f func(context.Context) error) error {
		l.Lock()
		defer l.Unlock()
		return f(ctx)
	}})
}

// instances are a contender that has this one again and again.
func instances(in contender.Instance) contender.Contender {
	in.Close = func() error { return nil }
	return contender.Contender{Name: "fake", Role: contender.Rival, Open: func(contender.Options) (contender.Instance, error) { return in, nil }}
}

func machine(t *testing.T) Machine {
	t.Helper()
	needRedis(t)
	return with(t, server.Redis)
}

func needRedis(t *testing.T) {
	t.Helper()
	_, err := testproc.Find("redis-server")
	testproc.Need(t, err)
}

// with starts stores, and what delays the way to them.
func with(t *testing.T, stores ...server.Store) Machine {
	t.Helper()
	m, err := NewMachine(t.Context(), stores, true)
	require.NoError(t, err)
	t.Cleanup(m.Stop)
	return m
}

var hot = Scenario{Name: "test", Instances: 2, Workers: 4, HandOvers: true, Work: 100 * time.Microsecond}

func TestALockThatExcludesHasNoViolations(t *testing.T) {
	r, err := machine(t).Run(t.Context(), fake(new(sync.Mutex)), hot, Loopback, 50*time.Millisecond)
	require.NoError(t, err)
	assert.Zero(t, r.Violations)
	assert.Positive(t, r.Ops)
	assert.Equal(t, uint64(r.Ops), r.Latency.Count)
	assert.Positive(t, r.HandOver.Count)
	assert.Zero(t, r.CommandsPerOp)
}

func TestTooManyInsideAreFound(t *testing.T) {
	m := with(t, server.Memory)
	readers, permits := hot, Scenario{Name: "test", Instances: 3, Workers: 3, Work: time.Millisecond, Jitter: 0.5, Permits: 8}
	readers.Readers = 0.8
	enough := permits
	enough.Permits = 9
	for name, c := range map[string]struct {
		contender contender.Contender
		scenario  Scenario
		found     bool
	}{
		"without a lock":         {fake(noLock{}), hot, true},
		"9 inside for 8 permits": {fake(noLock{}), permits, true},
		"9 inside for 9 permits": {fake(noLock{}), enough, false},
		"readers beside writers": {instances(readWrite(true)), readers, true},
		"readers together":       {instances(readWrite(false)), readers, false},
	} {
		c.contender.Store = server.Memory
		r, err := m.Run(t.Context(), c.contender, c.scenario, Loopback, 100*time.Millisecond)
		require.NoError(t, err)
		assert.Positive(t, r.Ops, name)
		assert.Equal(t, c.found, r.Violations > 0, name)
		if c.scenario.Permits > 0 {
			assert.Positive(t, r.Wait.Count, name)
		}
	}
}

func TestCommandsAreCountedExactly(t *testing.T) {
	m := machine(t)
	r, err := m.Run(t.Context(), contender.Ping(), Scenario{Name: "ping", Instances: 1, Workers: 1}, Delayed, 100*time.Millisecond)
	require.NoError(t, err)
	assert.InDelta(t, r.Ops, r.CommandsPerOp*float64(r.Ops), 4.01, "one is under way at each end, and more come before a busy machine has read the counter")
	assert.GreaterOrEqual(t, r.Latency.P50, 2*Delay)
}

func TestAContenderThatHidesACommandIsRefused(t *testing.T) {
	m := machine(t)
	c := contender.Ping()
	c.Commands = nil
	require.ErrorContains(t, m.CheckCommands(t.Context(), c), `"ping"`)
	seen := server.Seen{Scripts: map[string]int64{"set": 1}}
	require.ErrorContains(t, compare(contender.Contender{Name: "x", Commands: []string{"set"}}, seen), "scripts")
}

func TestTheLongestWaitCountsCallsThatHaveNotReturned(t *testing.T) {
	stopped := time.Now()
	workers := []*worker{{begun: stopped.Add(-time.Second)}, {begun: stopped.Add(-time.Minute)}}
	assert.Equal(t, time.Minute, longestWait(workers, stopped))
}

func TestKeysAreWhatTheScenarioSays(t *testing.T) {
	for _, s := range Scenarios() {
		names := s.keyNames()
		seen := make(map[int]int)
		for w := range s.Instances * s.Workers {
			choose := s.chooser(w)
			for range 100 {
				k := choose()
				require.Less(t, k, len(names), s.Name)
				seen[k]++
			}
		}
		switch s.Keys {
		case Hot:
			assert.Len(t, seen, 1, s.Name)
		case Own:
			assert.Len(t, seen, s.Instances*s.Workers, s.Name)
		case Free:
			assert.Len(t, seen, 100*s.Instances*s.Workers, s.Name)
		case Zipfian:
			assert.Greater(t, seen[0], 100*s.Workers/20, "the first key is the hottest")
		}
	}
}

// A linger sends nothing, and Zipf's keys are held by few, so work would show nothing more there.
func TestAnEmptyCriticalSectionHasATwinWithWork(t *testing.T) {
	worked := map[string]bool{}
	of := func(s Scenario) string { return fmt.Sprint(s.Instances, s.Workers, s.Keys, len(s.Locker)) }
	for _, s := range overRedis() {
		worked[of(s)] = worked[of(s)] || s.Work == workTime
	}
	for _, s := range overRedis() {
		assert.True(t, worked[of(s)] || s.Keys == Zipfian || s.OnlyOurs, s.Name)
	}
}

func TestFloorsExcludeInTheirScenarios(t *testing.T) {
	needRedis(t)
	m := with(t, server.Redis, server.Memory)
	seen := map[string]bool{}
	for _, s := range overRedis() {
		for _, c := range contender.All() {
			if c.Role != contender.Floor || c.Group != s.Group || !s.Has(c) || seen[c.Name] {
				continue
			}
			seen[c.Name] = true
			require.NoError(t, m.CheckCommands(t.Context(), c), c.Name)
			r := runUntilSome(t, m, c, s)
			assert.Positive(t, r.Ops, c.Name)
			assert.Zero(t, r.Violations, c.Name)
			assert.Zero(t, r.Failed, "%s: %s", c.Name, r.Failure)
			assert.Equal(t, c.Commands != nil, r.CommandsPerOp > 0, c.Name)
			assert.Zero(t, runUntilSome(t, m, c, hot).Violations, "%s on one key, where some may fail", c.Name)
		}
	}
	assert.Len(t, seen, 3)
}

func TestCoresAreKeptAwakeInAWarmRoundAlone(t *testing.T) {
	m := machine(t)
	for link, warm := range map[Link]bool{Loopback: false, Warm: true} {
		var before, after syscall.Rusage // of children that have ended
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_CHILDREN, &before))
		_, err := m.Run(t.Context(), contender.Ping(), hot, link, 50*time.Millisecond)
		require.NoError(t, err)
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_CHILDREN, &after))
		assert.Equal(t, warm, after != before, link)
	}
}

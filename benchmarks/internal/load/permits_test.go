package load

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/server"
)

func TestOneTooManyInsideIsFound(t *testing.T) {
	m := with(t, server.Memory)
	c := fake(noLock{})
	c.Store = server.Memory
	s := Scenario{Name: "test", Instances: 3, Workers: 3, Work: time.Millisecond, Jitter: 0.5}
	for permits, over := range map[int]bool{8: true, 9: false} {
		s.Permits = permits
		r, err := m.Run(t.Context(), c, s, Loopback, 100*time.Millisecond)
		require.NoError(t, err)
		assert.Equal(t, over, r.Violations > 0, "%d permits", permits)
		assert.Positive(t, r.Wait.Count)
	}
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

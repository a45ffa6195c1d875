package keepalive_test

import (
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/stretchr/testify/assert"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testclock"
)

// asleepBefore is for how long the machine was suspended before the process began.
//
//go:linkname asleepBefore github.com/wllock/wllock/distributed.asleepBefore
var asleepBefore int64

// suspend makes it look as if the machine had been suspended since the process began, until the test ends.
func suspend(t *testing.T) {
	asleepBefore -= int64(time.Hour)
	t.Cleanup(func() { asleepBefore += int64(time.Hour) })
}

func TestLeftByEitherClock(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		now           time.Time
		left, resumed time.Duration // the second on a machine that has been suspended
	}{
		"both clocks go":                    {now.Add(time.Second), 4 * time.Second, 4 * time.Second},
		"at the end":                        {now.Add(5 * time.Second), 0, 0},
		"the wall clock went on alone":      {testclock.Skew(now.Add(time.Hour), -time.Hour), 5 * time.Second, 5*time.Second - time.Hour},
		"set back: only the monotonic went": {testclock.Skew(now, time.Hour), 5*time.Second - time.Hour, 5*time.Second - time.Hour},
		"set forward by little":             {testclock.Skew(now.Add(time.Second), -time.Second), 5 * time.Second, 4 * time.Second},
		"read one after the other":          {testclock.Skew(now.Add(time.Microsecond), -time.Microsecond), 5*time.Second - time.Microsecond, 5*time.Second - time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			until := now.Add(5 * time.Second)
			assert.Equal(t, c.left, distributed.Left(c.now, until))
			assert.Equal(t, c.left <= 0, distributed.Over(c.now, until))
			suspend(t)
			assert.Equal(t, c.resumed, distributed.Left(c.now, until))
			assert.Equal(t, c.resumed <= 0, distributed.Over(c.now, until))
		})
	}
}

// TestSuspendedHolder: a lease that has expired by the wall clock has ended on a machine that was suspended, though no timer can know it yet (rule K2).
func TestSuspendedHolder(t *testing.T) {
	s := serve(renewed)
	defer s.Close()
	now, l := time.Now(), new(lease)
	s.Keep(&l.Lease, l, ttl, testclock.Skew(now, ttl), now.Add(ttl))
	assert.True(t, l.Healthy(), "the wall clock may have been set")
	suspend(t)
	assert.False(t, l.Healthy())
	assert.False(t, isLost(l), "nobody has looked")
	assert.False(t, l.Finish())
	assert.True(t, isLost(l))
}

//go:build unix

package testproc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The witness of the tests of fleets sees too many, and does not mistake one that follows another for two.
func TestTurnstileCounts(t *testing.T) {
	s, err := OpenTurnstile(t.TempDir() + "/gates")
	require.NoError(t, err)
	a, b, c := s.Gate(), s.Gate(), s.Gate()
	soon := time.Now().Add(time.Minute)
	s.Enter(a, soon, 2)
	s.Enter(b, soon, 2)
	s.Leave(a, 7)
	s.Enter(c, soon, 2)
	s.Enter(a, time.Now().Add(-time.Second), 2) // does not begin
	require.Zero(t, s.Over.Load())
	s.Enter(a, soon, 2)
	require.Equal(t, int64(1), s.Over.Load())
	require.Equal(t, int64(2), s.Most.Load())
	require.Equal(t, uint64(7), s.Ended.Load())
	b.Store(time.Now().Add(-time.Second).UnixNano()) // was killed, and its lease has ended
	require.Equal(t, 2, s.count(1))
}

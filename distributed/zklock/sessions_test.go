package zklock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// The handshake of another connection is no proof, until a sync is answered later: a leader that was stopped, and replaced, answers it.
func TestAHandshakeIsNoProof(t *testing.T) {
	t.Parallel()
	b, _, proxy := cutOff(t)
	s := asker{t, b, "k"}.lease("a", lasting(long)).(*lease).a.s
	proxy.Stall(true) // no sync is answered from here on
	sent := time.Now()
	s.opened(sent, s.timeout())
	s.setUp(true)
	require.Eventually(t, func() bool { return s.alive.Load().last.Load().Equal(sent) }, patience, time.Millisecond, "it counts as a sync")
	require.True(t, s.until().Before(distributed.Validity(sent, s.timeout())))
}

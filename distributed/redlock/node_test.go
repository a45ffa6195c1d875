package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/conn"
)

// rest has a server not asked until then.
func (n *node) rest(until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failures, n.pausedTo, n.why = failuresToPause, until, errLate
	n.b.pauses.Add(1)
}

// What is to find out whether a server is back may be a release that an Enter makes needless: then the next question does.
func TestANeedlessQuestionFindsNothingOut(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	b := s.open()
	n := b.nodes[0]
	n.rest(time.Now())
	echo := *conn.NewCall(echoScript, nil)
	n.send(&ask{Call: echo, lane: lanes, limit: patience, needless: func() bool { return true }})
	require.Eventually(t, func() bool {
		answered := make(chan error, 1)
		n.send(&ask{Call: echo, lane: lanes, limit: patience, done: func(k *ask) { answered <- k.Err }})
		return <-answered == nil
	}, patience, time.Millisecond)
}

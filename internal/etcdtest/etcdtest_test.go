package etcdtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(Main(m)) }

func TestServersStartAndRestart(t *testing.T) {
	t.Parallel()
	require.True(t, isReady(Shared(t)))
	s := Start(t)
	s.Kill()
	require.False(t, isReady(s))
	s.Restart()
	require.True(t, isReady(s))
}

func TestClusterWorksWithoutOneMember(t *testing.T) {
	t.Parallel()
	all := StartCluster(t)
	all[0].Kill()
	require.Eventually(t, func() bool { return isReady(all[1]) && isReady(all[2]) }, time.Minute, 50*time.Millisecond)
	all[1].Kill()
	require.Eventually(t, func() bool { return !isReady(all[2]) }, time.Minute, 50*time.Millisecond)
	all[0].Restart()
}

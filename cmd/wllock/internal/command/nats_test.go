//go:build linux

package command

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

// natsServer starts a server in this process, with or without JetStream, and returns its URL.
func natsServer(t *testing.T, jetStream bool) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: jetStream, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return "nats://" + s.Addr().String()
}

// What makes a stream forget locks is named, and a server without JetStream.
func TestDoctorOfNATS(t *testing.T) {
	t.Parallel()
	found := finds(t, no, shop(natsServer(t, true)))
	require.Contains(t, found["storage"], "ok: the stream wllock is kept in: File")
	require.Contains(t, found["replicas"], "warning: the stream wllock has 1 replicas")
	require.Contains(t, found["disk"], "sync_interval: always")
	found = finds(t, wrong, shop(natsServer(t, false)))
	require.Contains(t, found["access"], "error: ")
	require.NotContains(t, found, "storage")
}

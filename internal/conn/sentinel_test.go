package conn

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheLaterQuestionCounts: a dial that asked the sentinels before a failover ends after one that asked since. It may not lead back to the
// old primary.
func TestTheLaterQuestionCounts(t *testing.T) {
	t.Parallel()
	listen := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l.Addr().String()
	}
	before, since := listen(), listen()
	asked, goOn := make(chan struct{}), make(chan struct{})
	p := newPrimary(func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == before {
			close(asked)
			<-goOn
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	})
	late := make(chan error)
	go func() {
		_, err := p.connect(t.Context(), "tcp", before)
		late <- err
	}()
	<-asked
	conn, err := p.connect(t.Context(), "tcp", since)
	require.NoError(t, err)
	close(goOn)
	require.ErrorIs(t, <-late, errMoved)
	require.False(t, conn.(*followed).moved.Load())
	require.NoError(t, conn.Close())
}

//go:build linux

package command

import (
	"bufio"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// monitored returns the commands of clients that a Redis server gets meanwhile.
func monitored(t *testing.T, addr string, f func()) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	_, err = conn.Write([]byte("MONITOR\r\n"))
	require.NoError(t, err)
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	require.True(t, lines.Scan())
	var log strings.Builder
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines.Scan() && !strings.Contains(lines.Text(), "end-of-log") {
			log.WriteString(lines.Text() + "\n")
		}
	}()
	f()
	other, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	_, err = other.Write([]byte("ECHO end-of-log\r\n"))
	require.NoError(t, err)
	<-done
	require.NoError(t, other.Close())
	require.NoError(t, conn.Close())
	return log.String()
}

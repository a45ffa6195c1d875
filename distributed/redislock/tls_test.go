package redislock

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// Over TLS a lock goes from one process to the next as ever; a server whose certificate nobody vouches for is refused.
func TestTLS(t *testing.T) {
	testscope.Long(t, "waits for handshakes that fail")
	t.Parallel()
	cert, private, roots := redistest.Certificate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	redistest.Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", private, "--tls-auth-clients", "no")

	trusting := func() *Backend {
		client := redis.NewClient(&redis.Options{Addr: addr, TLSConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}})
		b, err := New(client)
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = b.Close()
			_ = client.Close()
		})
		return b
	}
	x, y := newUser(t, trusting()), newUser(t, trusting())
	held := x.lease(key(t))
	p := y.place(key(t))
	release(t, held)
	release(t, granted(t, p))

	b, err := Open("rediss://" + addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // for a handshake on a busy machine
	defer cancel()
	err = b.Ping(ctx)
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	if !strings.Contains(err.Error(), "certificate") { // no handshake has ended
		needsQuieter(t, 30*time.Millisecond)
	}
	require.ErrorContains(t, err, "certificate")
}

// A server that waits for plain text answers no handshake. The error names TLS, and a short deadline is kept.
func TestTLSToAPlainPort(t *testing.T) {
	testscope.Long(t, "waits for handshakes that fail")
	t.Parallel()
	s := redistest.Start(t)
	for _, url := range []string{"rediss://" + s.Addr, "rediss+sentinel://" + s.Addr + "/main", "rediss+cluster://" + s.Addr} {
		b, err := Open(url)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 2*conn.DialTimeout)
		err = b.Ping(ctx)
		cancel()
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		require.ErrorContains(t, err, "over TLS", url)

		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		start := time.Now()
		err = b.Ping(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(start), conn.DialTimeout/2)
		require.NoError(t, b.Close())
	}
}

// TestTLSHandshakeObeysOurLimit: a server that accepts and says nothing holds nobody up for the time-out of the client
// that New was given, 5 s as a rule.
func TestTLSHandshakeObeysOurLimit(t *testing.T) {
	t.Parallel()
	for name, conf := range map[string]*tls.Config{"plain": nil, "TLS": {InsecureSkipVerify: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redis.NewClient(&redis.Options{Addr: mute(t), TLSConfig: conf})
			t.Cleanup(func() { _ = client.Close() })
			b, err := New(client)
			require.NoError(t, err)
			t.Cleanup(func() { _ = b.Close() })
			b.proven.Store(true) // as if the server fell silent later
			start := time.Now()
			_, _, err = newUser(t, b).enter(t.Context(), key(t))
			require.ErrorIs(t, err, distributed.ErrUnavailable)
			inTime(t, "refused", time.Since(start), conn.DialTimeout+testTTL/2)
		})
	}
}

// mute returns the address of a server that accepts connections and never answers.
func mute(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var conns []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		for _, c := range conns {
			_ = c.Close()
		}
	})
	return l.Addr().String()
}

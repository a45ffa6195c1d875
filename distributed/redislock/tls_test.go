package redislock

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/tlstest"
)

// Servers, what sentinels name, and clusters are trusted, and trust us, by the files that the URL names.
func TestTLSByURL(t *testing.T) {
	t.Parallel()
	node := redistest.StartLoneNode(t)
	for kind, start := range map[string]tlstest.Start{
		"single": tlstest.Before(redistest.Start(t).Addr, func(addr string) string { return "rediss://" + addr + "/1" }),
		"sentinel": func(t *testing.T, server tlstest.Pair, clients string) (string, func(tlstest.Pair, string)) {
			primary, sentinel := redistest.Start(t), redistest.StartLoneSentinel(t)
			p, asked := tlstest.NewProxy(t, primary.Addr, server, clients), tlstest.NewProxy(t, sentinel.Addr, server, clients)
			host, port, _ := net.SplitHostPort(p.Addr)
			sentinel.Do("SENTINEL", "MONITOR", redistest.MasterName, host, port, 1)
			return "rediss+sentinel://" + asked.Addr + "/" + redistest.MasterName, func(server tlstest.Pair, clients string) {
				p.Show(t, server, clients)
				asked.Show(t, server, clients)
			}
		},
		"cluster": tlstest.Alone(tlstest.Before(node.Addr, func(addr string) string {
			_, port, _ := net.SplitHostPort(addr)
			node.Do("CONFIG", "SET", "cluster-announce-port", port)
			return "rediss+cluster://" + addr
		})),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			tlstest.Run(t, start, func(url string) (*Backend, error) { return Open(url) })
		})
	}
}

// What the URL says of TLS and cannot be is named at once, and no password shown.
func TestWrongTLSIsNamed(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"rediss://u:s3cret@h?tls_ca=/none.pem":                 "the parameter tls_ca: open /none.pem",
		"rediss+sentinel://u:s3cret@h/main?tls_cert=/none.pem": "tls_cert and tls_key need each other",
		"rediss+cluster://u:s3cret@h?tls_key=/none.pem":        "tls_cert and tls_key need each other",
		"redis://u:s3cret@h?tls_ca=/none.pem":                  "tls_ca is for TLS, which redis:// is without",
		"redis+sentinel://u:s3cret@h/main?tls_ca=/none.pem":    "tls_ca is for TLS, which redis+sentinel:// is without",
		"unix://u:s3cret@/none?tls_server_name=h":              "tls_server_name is for TLS, which unix:// is without",
		"rediss://u:s3cret@h?tls_server_name=x&skip_verify=1":  "skip_verify has no use beside those of TLS",
		"rediss://u:s3cret@h?colour=red":                       "colour",
	} {
		_, err := Open(url)
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

// A server that waits for plain text answers no handshake. The error names TLS, and a short deadline is kept.
func TestTLSToAPlainPort(t *testing.T) {
	testscope.Long(t, "waits for handshakes that fail")
	t.Parallel()
	s := redistest.Start(t)
	for _, url := range []string{"rediss://" + s.Addr, "rediss+sentinel://" + s.Addr + "/main", "rediss+cluster://" + s.Addr} {
		b := byURL(t, url)
		err := b.Ping(within(t, 2*conn.DialTimeout))
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		require.ErrorContains(t, err, "over TLS", url)

		start := time.Now()
		require.ErrorIs(t, b.Ping(within(t, 20*time.Millisecond)), context.DeadlineExceeded)
		require.Less(t, time.Since(start), conn.DialTimeout/2)
	}
}

// TestTLSHandshakeObeysOurLimit: a server that accepts and says nothing holds nobody up for the time-out of the client
// that New was given, 5 s as a rule.
func TestTLSHandshakeObeysOurLimit(t *testing.T) {
	t.Parallel()
	mute := redistest.NewProxy(t, redistest.Start(t).Addr)
	mute.SetHalfOpen(true)
	for name, conf := range map[string]*tls.Config{"plain": nil, "TLS": {InsecureSkipVerify: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redis.NewClient(&redis.Options{Addr: mute.Addr, TLSConfig: conf})
			t.Cleanup(func() { _ = client.Close() })
			b := with(t, client)
			b.proven.Store(true) // as if the server fell silent later
			inTime(t, "refused", conn.DialTimeout+testTTL/2, func() {
				require.ErrorIs(t, newUser(t, b).fails(t.Context(), key(t)), distributed.ErrUnavailable)
			})
		})
	}
}

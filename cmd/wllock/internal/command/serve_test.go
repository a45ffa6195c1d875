//go:build linux

package command

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/internal/tlstest"
)

// serving starts the page, and returns its address.
func serving(t *testing.T, env []string, args ...string) (p *program, url string) {
	t.Helper()
	p = start(t, env, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...).says("/\n")
	return p, regexp.MustCompile(`https?://\S+`).FindString(p.err.String())
}

// got returns the page, or why there is none.
func got(client *http.Client, url string) (string, error) {
	answer, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// Holders, waiters and jobs of several processes are on one page. It outlives the service, and ends with a signal.
func TestServe(t *testing.T) {
	t.Parallel()
	s, env := redis(t)
	env = append(env, "WLLOCK_LEASE_TTL=60s", "WLLOCK_KEY_SECRET=sixteen bytes or more")
	exits(t, 3, env, "run", "cron", "report", "--", "sh", "-c", "exit 3")
	start(t, append(env, "WLLOCK_INSTANCE=web-1"), "run", "account", "4711", "--", "sh", "-c", "echo in; exec sleep 60").says("in")
	start(t, append(env, "WLLOCK_INSTANCE=web-2"), "run", "account", "4711", "--", "true")
	awaitWaiters(t, env, "account", "4711", 1)
	p, url := serving(t, env, "--interval", "100ms")
	text, err := got(http.DefaultClient, url+"?format=json")
	require.NoError(t, err)
	require.NotContains(t, text, "4711")
	var page struct {
		Locks []show.Lock
		Jobs  []show.Job
	}
	require.NoError(t, json.Unmarshal([]byte(text), &page))
	require.Equal(t, "shop:account:#645fc47328abdeed", page.Locks[0].Key)
	require.Equal(t, "web-1", page.Locks[0].Holders[0].Host)
	require.Equal(t, "web-2", page.Locks[0].Waiters[0].Host)
	require.Equal(t, "exit 3", page.Jobs[0].Last.Result)
	text, err = got(http.DefaultClient, url+"?prefix=shop:account:4")
	require.NoError(t, err)
	require.Contains(t, text, "0 waiting, 0 held", "a hash hides what its key begins with")

	s.Kill()
	require.Eventually(t, func() bool {
		text, err = got(http.DefaultClient, url)
		return err == nil && regexp.MustCompile(`(?s)BACKEND NOT AVAILABLE for .*refused.*#645fc47328abdeed .*shop:cron:#`).MatchString(text)
	}, patience, 10*time.Millisecond, "%s", text)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.ends(), p.err.String())
}

// Other machines reach no page without TLS, and with authorities for clients only theirs do. A certificate is renewed without a restart.
func TestServeOverTLS(t *testing.T) {
	t.Parallel()
	ours, other := tlstest.NewAuthority(t), tlstest.NewAuthority(t)
	pair, renewed := ours.Issue("127.0.0.1"), ours.Issue("127.0.0.1")
	env := file(t)
	exits(t, 0, env, "run", "n", "1", "--", "true") // which makes the file
	_, url := serving(t, env, "--tls-cert", pair.Cert, "--tls-key", pair.Key, "--tls-client-ca", ours.File)
	client := func(by tlstest.Pair) *http.Client {
		trusted := x509.NewCertPool()
		text, err := os.ReadFile(ours.File)
		require.NoError(t, err)
		require.True(t, trusted.AppendCertsFromPEM(text))
		own, err := tls.LoadX509KeyPair(by.Cert, by.Key)
		require.NoError(t, err)
		c := &tls.Config{RootCAs: trusted, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }}
		return &http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}
	}
	serial := func() string {
		answer, err := client(ours.Issue("ops.test")).Get(url)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode)
		return answer.TLS.PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	_, err := got(client(other.Issue("ops.test")), url)
	require.ErrorContains(t, err, "certificate")
	tlstest.Copy(t, renewed.Key, pair.Key)
	tlstest.Copy(t, renewed.Cert, pair.Cert)
	require.NotEqual(t, before, serial())
}

func TestServeRefusesWrongFlags(t *testing.T) {
	t.Parallel()
	env := file(t)
	exits(t, 0, env, "run", "n", "1", "--", "true") // which makes the file
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	pair := tlstest.NewAuthority(t).Issue("127.0.0.1")
	for says, args := range map[string][]string{
		"missing port in address: want ADDRESS:PORT, as 127.0.0.1:5625": {"--listen", "localhost"},
		"address already in use":                    {"--listen", taken.Addr().String()},
		"other machines reach it":                   {"--listen", ":0"},
		"--interval 1ms: want 100ms or more":        {"--interval", "1ms"},
		"need each other":                           {"--tls-cert", pair.Cert},
		"no such file":                              {"--tls-cert", pair.Cert, "--tls-key", "/none"},
		"no certificate in PEM form":                {"--tls-cert", pair.Cert, "--tls-key", pair.Key, "--tls-client-ca", pair.Key},
		"--plain and --tls-cert exclude each other": {"--tls-cert", pair.Cert, "--tls-key", pair.Key, "--plain"},
		"want SYSTEM or SYSTEM:NAME":                {"a", "b"},
	} {
		_, err := exits(t, usage, env, append([]string{"serve"}, args...)...)
		require.Contains(t, err, says)
	}
}

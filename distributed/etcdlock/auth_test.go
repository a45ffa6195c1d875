package etcdlock

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

// guarded is a server with authentication on, and its root.
type guarded struct {
	*etcdtest.Server
	root   *clientv3.Client
	prefix string // where the user shop may read and write
}

func startGuarded(t *testing.T, args ...string) *guarded {
	t.Helper()
	g := &guarded{Server: etcdtest.Start(t, append(args, "--bcrypt-cost=4")...), prefix: newPrefix()} // the cheapest
	c := plainClient(t, g.Addr)
	for _, user := range []string{"root", "shop", "guest", "nobody"} {
		etcdctl(t, c, "user add "+user+":secret-"+user, "role add "+user, "user grant-role "+user+" "+user)
	}
	below := g.prefix + "/"
	etcdctl(t, c, "role grant-permission --prefix=true shop readwrite "+below)
	_, err := c.RoleGrantPermission(t.Context(), "guest", below, g.prefix+"/t", clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = c.AuthEnable(t.Context())
	require.NoError(t, err)
	g.root = userClient(t, g.Addr, "root", "secret-root")
	return g
}

// grant gives the user shop this right below the prefix, and no other one.
func (g *guarded) grant(t *testing.T, right clientv3.PermissionType) {
	t.Helper()
	below := g.prefix + "/"
	_, err := g.root.RoleRevokePermission(t.Context(), "shop", below, clientv3.GetPrefixRangeEnd(below))
	require.NoError(t, err)
	_, err = g.root.RoleGrantPermission(t.Context(), "shop", below, clientv3.GetPrefixRangeEnd(below), right)
	require.NoError(t, err)
}

func (g *guarded) open(t *testing.T, addr string, opts ...Option) *Backend {
	t.Helper()
	return open(t, "shop:secret-shop@"+addr, g.prefix, opts...)
}

// revokeToken has the server forget the tokens of a user.
func (g *guarded) revokeToken(t *testing.T, password string) {
	t.Helper()
	_, err := g.root.UserChangePassword(t.Context(), "shop", password)
	require.NoError(t, err)
}

// jwt are the arguments of a server that gives out tokens which expire by themselves.
func jwt(t *testing.T, ttl string) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(t, err)
	write := func(kind string, der []byte) string {
		return fileOf(t, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	}
	return "--auth-token=jwt,sign-method=RS256,ttl=" + ttl + ",pub-key=" + write("PUBLIC KEY", public) +
		",priv-key=" + write("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
}

// fileOf returns a file with that text.
func fileOf(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// With authentication on: a user's token expires and is replaced, a wrong password and a missing right are named, and no password
// is shown.
func TestUsers(t *testing.T) {
	testscope.Long(t, "waits for a token to expire")
	t.Parallel()
	g := startGuarded(t, "--auth-token-ttl=1")
	b := open(t, "shop@"+g.Addr, g.prefix+"?password-file="+fileOf(t, "\ufeffsecret-shop\r\n"))
	l := asker(t, b, "k").Lease("a")
	p := asker(t, b, "k").Place("b")
	time.Sleep(3 * time.Second) // the token has expired
	require.True(t, l.Healthy())
	release(t, l)
	release(t, granted(t, p))
	require.NoError(t, b.Ping(t.Context()))

	// A user of some keys: a readiness check tells for which a lock would work.
	some := open(t, "guest:secret-guest@"+g.Addr, g.prefix)
	require.NoError(t, some.Probe(t.Context(), distributed.Probe{Key: "shop:product:1", TTL: time.Second}))
	require.ErrorContains(t, some.Probe(t.Context(), distributed.Probe{Key: "tours:seat:1", TTL: time.Second}), "the user lacks the right")
	require.NoError(t, some.Ping(t.Context()), "which knows no key")

	for url, want := range map[string]string{
		"nobody:secret-nobody@": "the user lacks the right to read and write below the prefix",
		"shop:secret-wrong@":    "authentication failed",
		"":                      "authentication is on, and the client has no user",
	} {
		b := open(t, url+g.Addr, g.prefix)
		err := b.Ping(t.Context())
		require.ErrorIs(t, err, distributed.ErrRefused, url)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}

// A token that has become invalid is replaced: one that the server has forgotten while the client was cut off or was restarted, one that an
// operator has revoked, and one that has expired by itself.
func TestATokenThatHasBecomeInvalidIsReplaced(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, g *guarded, proxy *testproc.Proxy){
		"revoked": func(t *testing.T, g *guarded, _ *testproc.Proxy) { g.revokeToken(t, "secret-shop") },
		"cut off": func(t *testing.T, g *guarded, proxy *testproc.Proxy) {
			proxy.Stall(true)
			g.revokeToken(t, "secret-shop")
			time.Sleep(ttl / 8)
			proxy.Stall(false)
			proxy.Cut()
		},
		"restarted": func(_ *testing.T, g *guarded, _ *testproc.Proxy) { g.Restart() },
		"expired":   func(*testing.T, *guarded, *testproc.Proxy) { time.Sleep(2 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := "--auth-token=simple"
			if name == "expired" {
				kind = jwt(t, "1s")
			}
			g := startGuarded(t, kind)
			proxy := testproc.NewProxy(t, g.Addr)
			b := g.open(t, proxy.Addr)
			release(t, asker(t, b, "k").Lease("a", lasting(long)))
			end(t, g, proxy)
			start := time.Now()
			ready(t, b)
			release(t, asker(t, b, "k").Lease("a", lasting(long)))
			testscope.InTime(t, time.Since(start), 5*time.Second, "the way back")
		})
	}
}

// A password that is changed on the server, and in the file: the next log-in takes the new one. Until then requests are refused, and not
// unanswered.
func TestAPasswordThatChanges(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	file := fileOf(t, "secret-shop\n")
	b := open(t, "shop@"+g.Addr, g.prefix+"?password-file="+file)
	ready(t, b)
	g.revokeToken(t, "secret-new")
	require.Eventually(t, func() bool {
		err := b.Ping(t.Context())
		return errors.Is(err, distributed.ErrRefused) && strings.Contains(err.Error(), "authentication failed")
	}, patience, time.Millisecond)
	require.NoError(t, os.WriteFile(file, []byte("secret-new\n"), 0o600))
	ready(t, b) // a log-in under way has read the old one
}

// The user loses the right to write while it holds and waits: a release and a leave say so, and are carried out when it has it again.
func TestReleasesThatAreRefused(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	open := func() testlocker.Asker { return asker(t, g.open(t, g.Addr), "k") } // no deletion shares a request with another
	l := open().Lease("a", lasting(long))
	p, next := open().Place("b", lasting(long)), open().Place("c", lasting(long))
	g.grant(t, clientv3.PermissionType(clientv3.PermRead))
	for range 2 {
		err := l.Release(t.Context())
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.ErrorContains(t, err, "lacks the right")
	}
	require.ErrorIs(t, p.Leave(t.Context()), distributed.ErrRefused)
	g.grant(t, clientv3.PermissionType(clientv3.PermReadWrite))
	release(t, granted(t, next))
	require.NoError(t, l.Release(t.Context()))
}

// The stream of watches has a token that has become invalid, so that its next watches are refused: it is opened anew, and a lone holder
// learns of a waiter, and that one of the release, without a look of their own. That is logged once.
func TestWatchesThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, g *guarded){
		"revoked": func(t *testing.T, g *guarded) { g.revokeToken(t, "secret-shop") },
		"old": func(t *testing.T, g *guarded) {
			_, err := g.root.UserAdd(t.Context(), "somebody", "else")
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := "--auth-token=simple"
			if name == "old" {
				kind = jwt(t, "1h")
			}
			g := startGuarded(t, kind)
			var log testlocker.Log
			b, other := g.open(t, g.Addr, WithLogger(log.Logger())), g.open(t, g.Addr)
			release(t, asker(t, b, "k").Lease("a", lasting(long)))
			release(t, asker(t, other, "k").Lease("a", lasting(long)))
			end(t, g)
			var held []distributed.Lease
			for range 8 {
				held = append(held, asker(t, b, rand.Text()).Lease("a", lasting(long)))
			}
			last := held[len(held)-1]
			p := asker(t, other, claimOf(last).a.Key).Place("b", lasting(long))
			require.Eventually(t, last.Contended, patience, time.Millisecond)
			for _, l := range held {
				release(t, l)
			}
			release(t, granted(t, p))
			require.LessOrEqual(t, log.Count("refused"), 1)
			require.Equal(t, log.Count("refused"), log.Count("accepted again"))
		})
	}
}

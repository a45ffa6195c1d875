package etcdlock

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testscope"
)

// A lease that is shorter than what the server grants is refused, and the error says what it takes.
func TestShortTTLsAreRefused(t *testing.T) {
	t.Parallel()
	b := onShared(t)
	_, _, err := asker{t, b, "k"}.try("a", lasting(900*time.Millisecond))
	require.ErrorIs(t, err, ErrInvalidTTL)
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "at least 1s")
	release(t, asker{t, b, "k"}.lease("a", lasting(1900*time.Millisecond))) // of an etcd lease of a second
}

// A full database refuses to write: the error says what to do, what is held goes on, and is released.
func TestFullDatabase(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, "--quota-backend-bytes=2000000")
	b := open(t, server.Addr, newPrefix())
	l := asker{t, b, "k"}.lease("a")
	c := plainClient(t, server.Addr)
	var err error
	for err == nil {
		_, err = c.Put(t.Context(), "/fill", strings.Repeat("x", 1_000_000))
	}
	for _, err := range []error{b.Ping(t.Context()), func() error { _, _, err := asker{t, b, "other"}.try("a"); return err }()} {
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.ErrorContains(t, err, "the database is full (alarm NOSPACE): compact, defragment and disarm it")
	}
	require.NoError(t, b.Echo(t.Context()))
	claimed(t, l)
	release(t, l)
}

// With authentication on: a user's token expires and is replaced, a wrong password and a missing right are named, and no password
// is shown.
func TestUsers(t *testing.T) {
	testscope.Long(t, "takes servers away, and brings them back")
	t.Parallel()
	server, prefix := etcdtest.Start(t, "--auth-token-ttl=1"), newPrefix()
	c := plainClient(t, server.Addr)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, user := range []string{"root", "shop", "guest", "nobody"} {
		_, err := c.UserAdd(ctx, user, "secret-"+user)
		require.NoError(t, err)
		_, err = c.RoleAdd(ctx, user)
		require.NoError(t, err)
		_, err = c.UserGrantRole(ctx, user, user)
		require.NoError(t, err)
	}
	_, err := c.RoleGrantPermission(ctx, "shop", prefix+"/", clientv3.GetPrefixRangeEnd(prefix+"/"), clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = c.RoleGrantPermission(ctx, "guest", prefix+"/", prefix+"/t", clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = c.AuthEnable(ctx)
	require.NoError(t, err)

	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("\ufeffsecret-shop\r\n"), 0o600))
	b := open(t, "shop@"+server.Addr, prefix+"?password-file="+file)
	l := asker{t, b, "k"}.lease("a")
	p := asker{t, b, "k"}.place("b")
	time.Sleep(3 * time.Second) // the token has expired
	require.True(t, l.Healthy())
	release(t, l)
	release(t, granted(t, p))
	require.NoError(t, b.Ping(t.Context()))

	// A user of some keys: a readiness check tells for which a lock would work.
	some := open(t, "guest:secret-guest@"+server.Addr, prefix)
	require.NoError(t, some.Probe(t.Context(), distributed.Probe{Key: "shop:product:1", TTL: time.Second}))
	require.ErrorContains(t, some.Probe(t.Context(), distributed.Probe{Key: "tours:seat:1", TTL: time.Second}), "the user lacks the right")
	require.NoError(t, some.Ping(t.Context()), "which knows no key")

	for url, want := range map[string]string{
		"nobody:secret-nobody@": "the user lacks the right to read and write below the prefix",
		"shop:secret-wrong@":    "authentication failed",
		"":                      "authentication is on, and the client has no user",
	} {
		b := open(t, url+server.Addr, prefix)
		err := b.Ping(t.Context())
		require.ErrorIs(t, err, distributed.ErrRefused, url)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}

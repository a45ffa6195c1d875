package natslock

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

const ttl = 2 * time.Second

func leased(t *testing.T, b *Backend, instance string) distributed.Lease {
	t.Helper()
	l, _, err := b.Enter(t.Context(), distributed.Request{Key: "shop:product:1", Instance: instance, TTL: ttl, NoWait: true})
	require.NoError(t, err)
	return l
}

// A server that is restarted with its data forgets no lock: the holder goes on, and others do not get in.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, dir, server.RANDOM_PORT)
	port := s.Addr().(*net.TCPAddr).Port
	b, other := open(t, s.Addr().String()), open(t, s.Addr().String())
	l := leased(t, b, "a")
	s.Shutdown()
	s.WaitForShutdown()
	start(t, dir, port)
	time.Sleep(ttl)
	require.False(t, distributed.Over(time.Now(), l.Until()))
	_, _, err := other.Enter(t.Context(), distributed.Request{Key: "shop:product:1", Instance: "b", TTL: ttl, NoWait: true})
	require.ErrorIs(t, err, distributed.ErrHeld)
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, leased(t, other, "b").Release(t.Context()))
}

// A server that is killed goes on with what is in its files: fences go on, too, and a lock that was held is.
func TestAServerThatIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, start(t, dir, server.RANDOM_PORT).Addr().String())
	held, _, err := b.Enter(t.Context(), distributed.Request{Key: "shop:product:2", Instance: "a", TTL: time.Minute})
	require.NoError(t, err)
	var last uint64
	for range 20 {
		l := leased(t, b, "a")
		last = testlocker.Fence(t, l)
		require.NoError(t, l.Release(t.Context()))
	}
	killed := t.TempDir()
	require.NoError(t, os.CopyFS(killed, os.DirFS(dir)))
	after := open(t, start(t, killed, server.RANDOM_PORT).Addr().String())
	l := leased(t, after, "a")
	require.Greater(t, testlocker.Fence(t, l), last)
	_, _, err = after.Enter(t.Context(), distributed.Request{Key: "shop:product:2", Instance: "b", TTL: time.Minute, NoWait: true})
	require.ErrorIs(t, err, distributed.ErrHeld)
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, held.Release(t.Context()))
}

// Whoever removes the stream removes all locks. Their holders find that out, and the fences of the next are above theirs.
func TestStreamIsRemoved(t *testing.T) {
	t.Parallel()
	b := open(t, start(t, t.TempDir(), server.RANDOM_PORT).Addr().String())
	l := leased(t, b, "a")
	before := testlocker.Fence(t, l)
	require.NoError(t, b.store.js.DeleteStream(t.Context(), DefaultStream))
	testlocker.Lost(t, l)
	next := leased(t, b, "b")
	require.Greater(t, testlocker.Fence(t, next), before)
	require.NoError(t, next.Release(t.Context()))
}

// A stream that is made for something else is refused, and left alone.
func TestForeignStream(t *testing.T) {
	t.Parallel()
	b := open(t, start(t, t.TempDir(), server.RANDOM_PORT).Addr().String())
	_, err := b.store.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: DefaultStream, Subjects: []string{DefaultStream + ".>"}, MaxAge: time.Hour})
	require.NoError(t, err)
	err = b.Ping(t.Context())
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "the stream wllock is not one of locks: want max_msgs_per_subject 1")
	info, err := b.store.js.Stream(t.Context(), DefaultStream)
	require.NoError(t, err)
	require.Equal(t, time.Hour, info.CachedInfo().Config.MaxAge)
}

// A server without JetStream, or none at all, is said in time.
func TestWithoutJetStream(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	require.NoError(t, err)
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	for _, addr := range []string{s.Addr().String(), "127.0.0.1:1"} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*exchangeTime)
		err := open(t, addr).Ping(ctx)
		cancel()
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		t.Log(err)
	}
}

// A process that holds 10,000 locks for long writes a few times in T for all of them, and loses none.
func TestTenThousandLeases(t *testing.T) {
	testscope.Longest(t, "takes minutes")
	const n, atOnce, lasts = 10_000, 64, 30 * time.Second
	b := open(t, start(t, t.TempDir(), server.RANDOM_PORT).Addr().String())
	leases := make([]distributed.Lease, n)
	each := func(do func(i int) error) {
		var all sync.WaitGroup
		began := time.Now()
		for first := range atOnce {
			all.Go(func() {
				for i := first; i < n; i += atOnce {
					assert.NoError(t, do(i))
				}
			})
		}
		all.Wait()
		t.Logf("%d in %v", n, time.Since(began).Round(time.Millisecond))
	}
	writes := func() uint64 {
		info, err := b.Stream(t.Context())
		require.NoError(t, err)
		return info.State.LastSeq
	}
	each(func(i int) (err error) {
		leases[i], _, err = b.Enter(t.Context(), distributed.Request{Key: fmt.Sprint("shop:product:", i), Instance: "a", TTL: lasts})
		return err
	})
	time.Sleep(lasts)
	before := writes()
	time.Sleep(3 * lasts)
	require.LessOrEqual(t, writes()-before, uint64(15), "writes in 3 T")
	each(func(i int) error { return leases[i].Release(t.Context()) })
}

// Tenures serve many times as many callers of a hot key as a turn for each through the servers.
func TestHotKey(t *testing.T) {
	testscope.Long(t, "measures")
	addr := start(t, t.TempDir(), server.RANDOM_PORT).Addr().String()
	testlocker.HotKey(t, func() distributed.Backend { return open(t, addr) })
}

// Rights that a client lacks are found by Ping: to publish, to ask JetStream, and to hear of changes.
func TestRights(t *testing.T) {
	t.Parallel()
	publish := []string{DefaultStream + ".>", "$JS.API.STREAM.CREATE." + DefaultStream, "$JS.API.STREAM.INFO." + DefaultStream, "$JS.API.STREAM.MSG.GET." + DefaultStream}
	subscribe := []string{DefaultStream + "-changes.>", "_INBOX.>"}
	rights := func(publish, subscribe []string) *server.User {
		return &server.User{Username: "u", Password: "p", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: subscribe},
		}}
	}
	for name, c := range map[string]struct {
		user *server.User
		want string
	}{
		"all":           {rights(publish, subscribe), ""},
		"no publishing": {rights(publish[1:], subscribe), `Permissions Violation for Publish to "wllock.`},
		"no reading":    {rights(publish[:3], subscribe), `Permissions Violation for Publish to "$JS.API.STREAM.MSG.GET.wllock"`},
		"no changes":    {rights(publish, subscribe[1:]), `Permissions Violation for Subscription to "wllock-changes.`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t.TempDir(), server.RANDOM_PORT)
			o.Users = []*server.User{c.user}
			b := open(t, "u:p@"+run(t, o).Addr().String())
			ctx, cancel := context.WithTimeout(t.Context(), 2*exchangeTime)
			defer cancel()
			err := b.Ping(ctx)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, distributed.ErrRefused)
			require.ErrorContains(t, err, c.want)
			if name == "no changes" { // a server that answers all else keeps its connection, and what others wait for on it
				require.NoError(t, b.PingKey(ctx, "a:b:c"))
				require.Zero(t, b.store.conn.Stats().Reconnects)
			}
		})
	}
}

// Keys may have any characters. Each has a subject of its own, and can be listed.
func TestSubjects(t *testing.T) {
	t.Parallel()
	b := open(t, start(t, t.TempDir(), server.RANDOM_PORT).Addr().String())
	testlocker.Keys(t, b, "b", "b:b:c", "b:b:c.d", "b:b:*", "b:b:>", "b:b: ", "b:b:%2E", "b:b:+", "b:b:ü\x00", "b:b:"+strings.Repeat("ü", 300))
}

func TestBadInput(t *testing.T) {
	for url, want := range map[string]string{
		"http://h":                    "not the URL of servers",
		"nats://":                     "not the URL of servers",
		"nats://h/with.dot":           `the stream "with.dot": want 1 to 64 letters`,
		"nats://h?replicas=6":         "6 replicas: want 1 to 5",
		"nats://h?replicas=many":      `replicas="many": want 1 to 5`,
		"nats://h?what=ever":          "the URL has an unknown parameter",
		"nats://h?tls_ca=x":           "is for TLS",
		"nats://h?password-file=/x":   "password-file wants a user in the URL",
		"nats://user:secret@h/a b?=1": "",
	} {
		b, err := Open(url)
		require.Error(t, err, url)
		require.Nil(t, b)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err := New(nil)
	require.EqualError(t, err, "natslock: the connection is nil")
}

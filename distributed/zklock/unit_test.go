package zklock

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

func TestNamesAreReversibleAndReadable(t *testing.T) {
	for key, want := range map[string]string{
		"shop:product:1000": "shop:product:1000",
		"a/b":               "a%2Fb",
		"100%":              "100%25",
		"..":                "%2E.",
		".":                 "%2E",
		"a.b":               "a.b",
		"zookeeper":         "%7Aookeeper",
		"価格":                "価格",
		"\U0001f512":        "%F0%9F%94%92",
		"\ue000":            "%EE%80%80",
		"%ttl":              "%25ttl",
	} {
		assert.Equal(t, want, escape(key))
		back, err := Key(want)
		require.NoError(t, err)
		assert.Equal(t, key, back)
	}
	for _, name := range []string{"%", "%2", "a%zz"} {
		_, err := Key(name)
		assert.Error(t, err, name)
	}
}

func FuzzName(f *testing.F) {
	for _, seed := range []string{"a/b", "..", "%2F", "\U0001f512", "\x00", "\xff", strings.Repeat("/", 600)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		name := escape(key)
		back, err := Key(name)
		if err != nil || back != key {
			t.Fatalf("%q became %q and %q: %v", key, name, back, err)
		}
		if strings.Contains(name, "/") || name == "." || name == ".." || !utf8.ValidString(name) && utf8.ValidString(key) {
			t.Fatalf("%q became the bad name %q", key, name)
		}
	})
}

// A sync proves that the server was connected to its leader, and that the leader knows of what was sent half a tick before.
func TestASessionIsProvenByALaterSync(t *testing.T) {
	const timeout = 4 * time.Second // lag: 1 s
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	const rtt = 100 * time.Millisecond
	p := newProof(start, timeout)
	valid := func(since time.Duration) {
		t.Helper()
		require.Equal(t, distributed.Validity(at(since), timeout), *p.until.Load())
	}
	answered := func(sent time.Duration) { p.answered(at(sent), at(sent+rtt)) }
	valid(0)
	answered(500 * time.Millisecond)
	valid(0)
	answered(1500 * time.Millisecond)
	valid(0) // 0.9 s after the first one's answer
	answered(1600 * time.Millisecond)
	valid(500 * time.Millisecond)
	answered(3 * time.Second)
	valid(1600 * time.Millisecond)
	answered(4200 * time.Millisecond)
	valid(3 * time.Second)
}

// A request whose connection breaks while it is sent was not refused: it may have been carried out, and is asked again.
func TestAWriteThatFailsIsNoRefusal(t *testing.T) {
	conn, other := net.Pipe()
	require.NoError(t, conn.Close())
	require.NoError(t, other.Close())
	_, err := (&wire{Conn: conn, open: true}).Write([]byte("request"))
	require.True(t, isInterruption(err))
	err = explain("delete", err)
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.NotErrorIs(t, err, distributed.ErrRefused)
}

func TestOpenTakesSeveralServersAndAChroot(t *testing.T) {
	b, err := Open("zk://user:p%2Fw@h1,h2:2182,[::1]:2183/a/b/")
	require.NoError(t, err)
	defer b.Close()
	assert.Equal(t, []string{"h1:2181", "h2:2182", "[::1]:2183"}, b.servers)
	assert.Equal(t, "/a/b", b.set.root)
	assert.Equal(t, "user", b.set.user)
	assert.Equal(t, "p/w", b.set.password)
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v", b, b, b), "p/w")

	b, err = Open("zk://h1", WithAuthFile("me", "/run/secret"))
	require.NoError(t, err)
	defer b.Close()
	assert.Equal(t, DefaultRoot, b.set.root)
	assert.Equal(t, "me", b.set.user)
}

func TestWrongSettingsAreRefused(t *testing.T) {
	for _, url := range []string{
		"", "h1", "redis://h1", "zk://", "zk:///chroot", "zk://h1,,h2", "zk://u:secret/word@h1", "zk://h1/a?b=c",
		"zk://h1/a//b", "zk://h1/..", "zk://u:secret%zz@h1", "zk://h1/%zz", "zk://u:secret@h1?password-file=/x", "zk://h1?password-file=/x", "zk://u:secret@h1?tls_ca=/none",
		"zks://u:secret@h1?tls_ca=/none", "zks://u:secret@h1?b=c",
	} {
		_, err := Open(url)
		require.Error(t, err, url)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, o := range []Option{
		nil, WithLogger(nil), WithSessionTimeout(-1), WithSessionTimeout(1), WithAuth("a:b", ""), WithAuth("", "x"), WithRoot("x"),
	} {
		_, err := New([]string{"h"}, o)
		require.Error(t, err)
	}
	_, err := New(nil)
	require.Error(t, err)
}

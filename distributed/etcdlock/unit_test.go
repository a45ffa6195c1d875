package etcdlock

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

func TestNamesAreReversibleAndReadable(t *testing.T) {
	b, err := Open("etcd://h")
	require.NoError(t, err)
	defer b.Close()
	for key, want := range map[string]string{
		"shop:product:1000": "/wllock/shop:product:1000/",
		"a/b":               "/wllock/a%2Fb/",
		"a%2Fb":             "/wllock/a%252Fb/",
		"%guard":            "/wllock/%25guard/",
		"価格":                "/wllock/価格/",
	} {
		assert.Equal(t, want, b.dirOf(key))
		back, err := Key(DefaultPrefix, want+"x/abcdefgh-ABCDEFGHIJKLMNOP")
		require.NoError(t, err)
		assert.Equal(t, key, back)
	}
	for _, name := range []string{"", "/wllock/", "/wllock/a", "/other/a/x/y", "/wllock/%guard/1", "/wllock/%zz/x/y"} {
		_, err := Key(DefaultPrefix, name)
		assert.Error(t, err, name)
	}
}

func FuzzName(f *testing.F) {
	for _, seed := range []string{"a/b", "..", "%2F", "%252F", "\x00", "\xff", strings.Repeat("/", 600)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		name := DefaultPrefix + "/" + escaper.Replace(key) + "/x/y"
		back, err := Key(DefaultPrefix, name)
		if err != nil || back != key {
			t.Fatalf("%q became %q and %q: %v", key, name, back, err)
		}
		if strings.Contains(escaper.Replace(key), "/") {
			t.Fatalf("%q became %q, which has a slash", key, name)
		}
	})
}

// Validity counts from the send of what was answered.
func TestASessionIsProvenByTheSendOfAKeepalive(t *testing.T) {
	const ttl = 14 * time.Second
	start := time.Now()
	a := newAlive(start, ttl)
	require.Equal(t, start.Add(ttl-distributed.Drift(ttl)), *a.until.Load())
	a.proven(start.Add(time.Second))
	require.Equal(t, start.Add(time.Second+ttl-distributed.Drift(ttl)), *a.until.Load())
}

func TestOpenTakesSeveralServersAndAPrefix(t *testing.T) {
	b, err := Open("etcd://user:p%2Fw@h1,h2:2380,[::1]:2381/a/b/")
	require.NoError(t, err)
	defer b.Close()
	assert.Equal(t, []string{"http://h1:2379", "http://h2:2380", "http://[::1]:2381"}, b.dial.cfg.Endpoints)
	assert.Equal(t, "/a/b", b.set.prefix)
	assert.Equal(t, "user", b.dial.cfg.Username)
	assert.Equal(t, "p/w", b.dial.cfg.Password)
	assert.Nil(t, b.dial.cfg.TLS)
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v", b, b, b), "p/w")

	b, err = Open("etcds://me@h1?password-file=/run/secret&server-name=etcd.example", WithPrefix("locks"))
	require.NoError(t, err)
	defer b.Close()
	assert.Equal(t, []string{"https://h1:2379"}, b.dial.cfg.Endpoints)
	assert.Equal(t, "locks", b.set.prefix)
	assert.Equal(t, "/run/secret", b.dial.passwordFile)
	assert.Equal(t, "etcd.example", b.dial.cfg.TLS.ServerName)
}

func TestWrongSettingsAreRefused(t *testing.T) {
	notPEM := fileOf(t, "x")
	for _, url := range []string{
		"", "h1", "redis://h1", "etcd://", "etcd:///prefix", "etcd://h1,,h2", "etcd://u:secret/word@h1", "etcd://h1/a?b=c",
		"etcd://u:secret%zz@h1", "etcd://h1/%zz", "etcd://h1#a", "etcd://user@h1", "etcd://h1?password-file=x",
		"etcd://u:secret@h1?password-file=x", "etcd://h1?ca=x", "etcds://h1?ca=/none", "etcds://h1?cert=/none", "etcds://h1?ca=" + notPEM,
	} {
		_, err := Open(url)
		require.Error(t, err, url)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, o := range []Option{nil, WithLogger(nil), WithPrefix(""), WithPrefix("/")} {
		_, err := Open("etcd://h", o)
		require.Error(t, err)
	}
	_, err := New(nil)
	require.Error(t, err)
}

// What cannot be opened is nil, and not a nil pointer that passes for a Backend.
func TestOpenerOpensAURL(t *testing.T) {
	b, err := Opener(WithPrefix("/locks"))(t.Context(), &url.URL{Scheme: "etcd", Host: "h1,h2"})
	require.NoError(t, err)
	require.Equal(t, "/locks", b.(*Backend).set.prefix)
	require.NoError(t, b.Close())
	b, err = Opener()(t.Context(), &url.URL{Scheme: "redis", Host: "h1"})
	require.Error(t, err)
	require.Nil(t, b)
}

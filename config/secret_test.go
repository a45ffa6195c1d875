package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/config"
)

// renderings are all known ways for a value to get into a log or a response: each verb, by value and by pointer, and in an
// unexported field, on which fmt cannot call methods.
func renderings(t testing.TB, v any) string {
	t.Helper()
	var out bytes.Buffer
	hidden := struct{ inside any }{v}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n", v)
		fmt.Fprintf(&out, verb+"\n", &v)
		fmt.Fprintf(&out, verb+"\n", hidden)
		fmt.Fprintf(&out, verb+"\n", []any{v, hidden})
	}
	out.WriteString(fmt.Sprint(v) + fmt.Sprintln(v))
	require.NoError(t, json.NewEncoder(&out).Encode(v))
	require.NoError(t, json.NewEncoder(&out).Encode(map[string]any{"v": v}))
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("m", "v", v)
		slog.New(handler).Info("m", "v", hidden)
	}
	return out.String()
}

// in reports whether text contains secret, plain or in the hexadecimal form of %x.
func in(text, secret string) bool {
	return strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret))
}

func TestNoRenderingShowsASecret(t *testing.T) {
	const secret = "hunter2"
	c := config.Default()
	c.SystemName = "order"
	c.Backend = config.NewURL("redis://locks:" + secret + "@redis:6379/0?sentinel_password=" + secret)
	c.RedisPassword = config.NewSecret(secret)
	wrapped := struct{ cfg config.Config }{c} // fmt does not ask unexported fields for their methods

	for name, v := range map[string]any{
		"config": c, "pointer": &c, "url": c.Backend, "secret": c.RedisPassword, "wrapped": wrapped,
		"invalid": c.Validate(), "broken url": config.NewURL("redis://:" + secret + "/@redis"),
	} {
		require.False(t, in(renderings(t, v), secret), "%s shows the secret:\n%s", name, renderings(t, v))
	}
}

func TestWhatIsShownOfASecret(t *testing.T) {
	secret, url := config.NewSecret("hunter2"), config.NewURL("redis://:hunter2@h")
	require.Equal(t, "xxxxx xxxxx", fmt.Sprintf("%v %#v", secret, secret))
	require.Equal(t, "redis://:xxxxx@h redis://:xxxxx@h", fmt.Sprintf("%v %#v", url, url))
	require.Empty(t, config.Secret{}.String())
	require.Equal(t, "hunter2", secret.Reveal())

	c := valid()
	c.Backend, c.RedisUsername = url, "two words"
	require.Equal(t, c.String(), fmt.Sprintf("%#v", c))
	require.Contains(t, c.String(), "WLLOCK_SYSTEM_NAME=order WLLOCK_BACKEND=redis://:xxxxx@h WLLOCK_SINGLE_WAIT_THRESHOLD=1000")
	c.RedisPasswordFile = "/run/secrets/locks"
	encoded, err := json.Marshal(c)
	require.NoError(t, err)
	for _, text := range []string{fmt.Sprintf("%+v", c), string(encoded), c.LogValue().String()} {
		require.NotContains(t, text, "two words")
		require.NotContains(t, text, "secrets/locks")
		require.Contains(t, text, "xxxxx")
	}
	c.RedisUsername, c.RedisPasswordFile, c.SystemName = "", "", "two words"
	require.Contains(t, c.String(), `WLLOCK_SYSTEM_NAME="two words"`)
}

func TestURLString(t *testing.T) {
	for _, test := range []struct{ url, want string }{
		{"", ""},
		{"memory://", "memory://"},
		{"redis://redis:6379/1", "redis://redis:6379/1"},
		{"redis://:password@redis", "redis://:xxxxx@redis"},
		{"redis://user:p%2Fw@redis", "redis://user:xxxxx@redis"},
		{"redis://us%3Aer:p@w@redis", "redis://us%3Aer:xxxxx@redis"},
		{"redis://password-in-the-wrong-place@redis", "redis://xxxxx@redis"},
		{"redis+sentinel://:p@a:26379,b:26379,[::1]:26379/main?sentinel_password=p", "redis+sentinel://:xxxxx@a:26379,b:26379,[::1]:26379/main?xxxxx"},
		{"redlock://a,b,c", "redlock://a,b,c"},
		{"unix://:p@/run/redis.sock?db=1", "unix://:xxxxx@/run/redis.sock?xxxxx"},
		{"password", "(not a URL, not shown)"},
		{"redis:password", "(not a URL, not shown)"},
		{"redis://:password", "(not a URL, not shown)"},
		{"redis://:12/34@redis", "(not a URL, not shown)"},
		{"redis://:12?34@redis", "(not a URL, not shown)"},
		{"redis://:12#34@redis", "(not a URL, not shown)"},
		{"redis://:12%zz@redis", "(not a URL, not shown)"},
		{"redis://u:p@", "(not a URL, not shown)"},
		{"redis://a,,b", "(not a URL, not shown)"},
	} {
		require.Equal(t, test.want, config.NewURL(test.url).String(), test.url)
	}
}

// No rendering or error may show a password, whatever it and its surroundings look like.
func FuzzURLShowsNoPassword(f *testing.F) {
	f.Add("redis", "user", "", "", "redis:6379", "0", "db=1")
	f.Add("redis", "us/er", "a/", "?b", "h", "", "")
	f.Add("redis+sentinel", "", "%", "#", "a:1,b:2", "main@x", "password=")
	f.Add("://", "@", ":", "@", "", "", "")
	f.Fuzz(func(t *testing.T, scheme, user, before, after, host, path, query string) {
		const secret = "HUNTER2"
		if strings.Contains(strings.ToUpper(scheme+user+before+after+host+path+query), secret) {
			t.Skip("the secret stands outside the password")
		}
		text := fmt.Sprintf("%s://%s:%s@%s/%s?%s", scheme, user, before+secret+after, host, path, query)
		c := config.Default()
		c.Backend = config.NewURL(text)
		require.False(t, in(renderings(t, c.Backend), secret), text)
		require.False(t, in(renderings(t, c), secret), text)
		require.False(t, in(c.Validate().Error(), secret), text) // the system's name is missing
		if _, err := c.Backend.Parse(); err != nil {
			require.False(t, in(err.Error(), secret), text)
		}
	})
}

func FuzzThresholds(f *testing.F) {
	for _, seed := range []string{"1000", "500,product=200,cart=50", "unlimited", "a=unlimited,5", " 1 , b = 2", "=", ",", "a=b", "+7"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var first, second config.Thresholds
		if err := first.Decode(text); err != nil {
			require.Equal(t, config.Thresholds{}, first, "changed in spite of an error")
			return
		}
		require.NoError(t, second.Decode(first.String()))
		require.Equal(t, first, second)
		c := valid()
		c.SingleWaitThreshold = first
		require.NoError(t, c.Validate())
	})
}

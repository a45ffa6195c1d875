package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/config"
)

// The secret reaches the Locker, from a variable as from a file, and an option of Open overrides it.
func TestKeySecret(t *testing.T) {
	const secret, hash = "sixteen bytes or more", "#645fc47328abdeed"
	file := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	require.NoError(t, os.WriteFile(file+".short", []byte("fifteen bytes.."), 0o600))
	for _, test := range []struct {
		name, secret, file string
		opts               []wllock.Option
		want, fault        string
	}{
		{name: "none", want: "4711"},
		{name: "white space is none", secret: " \n", want: "4711"},
		{name: "a variable", secret: "\ufeff" + secret + "\r\n", want: hash},
		{name: "a file", file: file, want: hash},
		{name: "an option", file: file, opts: []wllock.Option{wllock.WithKeyRedaction(func(string) string { return "own" })}, want: "own"},
		{name: "both", secret: secret, file: file, fault: "WLLOCK_KEY_SECRET_FILE is set, but WLLOCK_KEY_SECRET is set too"},
		{name: "a short file", file: file + ".short", fault: "WLLOCK_KEY_SECRET_FILE names a file that has less than 16 bytes"},
		{name: "no file", file: secret, fault: "WLLOCK_KEY_SECRET_FILE names a file that cannot be read"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := valid()
			c.KeySecret, c.KeySecretFile = config.NewSecret(test.secret), test.file
			l, err := c.Open(t.Context(), test.opts...)
			if test.fault != "" {
				require.ErrorContains(t, err, test.fault)
				require.NotContains(t, err.Error(), secret)
				return
			}
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close(t.Context())) }()
			k, err := l.Acquire(t.Context(), "account", "4711")
			require.NoError(t, err)
			defer func() { require.NoError(t, k.Release(t.Context())) }()
			_, shown, _ := strings.Cut(l.Locks(1)[0].Key, ":account:")
			require.Equal(t, test.want, shown)
		})
	}
}

package kubelock

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/wllock/wllock/internal/kubetest"
)

func TestBadInput(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "absent"))
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	other := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(other, []byte("kind: Config\nclusters: secret"), 0o600))
	for url, want := range map[string]string{
		"http://locks":                                "not the URL of a namespace",
		"kubernetes://":                               "not the URL of a namespace",
		"kubernetes://locks/path":                     "not the URL of a namespace",
		"kubernetes://user:secret@locks":              "not the URL of a namespace",
		"kubernetes://locks?what=ever":                `the parameter "what" is unknown or empty: want context and kubeconfig`,
		"kubernetes://locks?context=":                 `the parameter "context" is unknown or empty`,
		"kubernetes://locks?%zz":                      "invalid URL escape",
		"kubernetes://locks":                          "no configuration has been provided",
		"kubernetes://locks?kubeconfig=/none":         "/none: no such file",
		"kubernetes://locks?kubeconfig=" + other:      other,
		"kubernetes://locks?context=none":             `context "none" does not exist`,
		"kubernetes://Locks?kubeconfig=" + other:      other,
		"kubernetes://locks:6443?kubeconfig=" + other: other,
	} {
		b, err := Open(url)
		require.Error(t, err, url)
		require.Nil(t, b)
		require.ErrorContains(t, err, want, url)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err := New(nil, "locks")
	require.EqualError(t, err, "kubelock: the config is nil")
	_, err = New(&rest.Config{Host: "h"}, "Locks")
	require.ErrorContains(t, err, `kubelock: the namespace "Locks": a lowercase RFC 1123 label`)
	_, err = New(&rest.Config{Host: "h", TLSClientConfig: rest.TLSClientConfig{Insecure: true, CAFile: "ca"}}, "locks")
	require.ErrorContains(t, err, "kubelock: ")
}

// The file of KUBECONFIG is used where a URL names none.
func TestKubeconfig(t *testing.T) {
	s := kubetest.Start(t)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", s.Kubeconfig(t, s.Addr))
	for _, url := range []string{"kubernetes://locks", "kubernetes://locks?context=test"} {
		b, err := Open(url)
		require.NoError(t, err)
		require.NoError(t, b.Ping(t.Context()))
		require.NoError(t, b.Close())
	}
}

//go:build linux

package command

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/kubetest"
)

// kubernetesServer starts a server in this process, and returns its URL.
func kubernetesServer(t *testing.T) (*kubetest.Server, string) {
	t.Helper()
	s := kubetest.Start(t)
	return s, "kubernetes://" + kubetest.Namespace + "?kubeconfig=" + s.Kubeconfig(t, s.Addr)
}

// What no client can see is said, and each right that is missing.
func TestDoctorOfKubernetes(t *testing.T) {
	t.Parallel()
	s, url := kubernetesServer(t)
	found := finds(t, 0, shop(url))
	require.Contains(t, found["namespace"], "ok: locks are Leases in the namespace locks")
	require.Contains(t, found["restore"], "--bump-revision")
	s.Allow("get", "list", "create", "delete")
	found = finds(t, wrong, shop(url))
	require.Contains(t, found["access"], "of which are missing: watch, update")
	require.Contains(t, found["access"], "kubectl apply the Role")
	found = finds(t, wrong, shop("kubernetes://kube-system?kubeconfig="+s.Kubeconfig(t, s.Addr)))
	require.Contains(t, found["access"], `namespaces "kube-system" not found`)
	require.Contains(t, found["namespace"], "warning: ")
}

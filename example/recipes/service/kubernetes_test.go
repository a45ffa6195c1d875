package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/wllock/wllock/config"
)

// longestHold is the default of WithLockTimeMax, after which an order has ended.
const longestHold = 10 * time.Second

// manifest decodes kubernetes.yaml with the types of Kubernetes. A field that these do not have is an error.
func manifest(t *testing.T) (deployment apps.Deployment, service core.Service, budget policy.PodDisruptionBudget) {
	t.Helper()
	text, err := os.ReadFile("kubernetes.yaml")
	require.NoError(t, err)
	objects := bytes.Split(text, []byte("\n---\n"))
	require.Len(t, objects, 3)
	require.NoError(t, yaml.UnmarshalStrict(objects[0], &deployment))
	require.NoError(t, yaml.UnmarshalStrict(objects[1], &service))
	require.NoError(t, yaml.UnmarshalStrict(objects[2], &budget))
	require.Equal(t, []string{"Deployment", "Service", "PodDisruptionBudget"}, []string{deployment.Kind, service.Kind, budget.Kind})
	return deployment, service, budget
}

func TestManifestSelectsItsPods(t *testing.T) {
	deployment, service, budget := manifest(t)
	labels := deployment.Spec.Template.Labels
	require.NotEmpty(t, labels)
	assert.Equal(t, labels, deployment.Spec.Selector.MatchLabels)
	assert.Equal(t, labels, service.Spec.Selector)
	assert.Equal(t, labels, budget.Spec.Selector.MatchLabels)
	ports := map[string]int32{}
	for _, p := range deployment.Spec.Template.Spec.Containers[0].Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, p := range service.Spec.Ports {
		assert.Contains(t, ports, p.TargetPort.String())
	}
	assert.Contains(t, ports, "admin")
}

// What the service does needs no right that a pod could be without.
func TestManifestGivesNoRights(t *testing.T) {
	deployment, service, _ := manifest(t)
	pod := deployment.Spec.Template.Spec
	c := pod.Containers[0].SecurityContext
	assert.True(t, *pod.SecurityContext.RunAsNonRoot && *c.ReadOnlyRootFilesystem)
	assert.False(t, *pod.AutomountServiceAccountToken || *c.AllowPrivilegeEscalation)
	assert.Equal(t, []core.Capability{"ALL"}, c.Capabilities.Drop)
	for _, p := range service.Spec.Ports {
		assert.NotEqual(t, "admin", p.TargetPort.String(), "shows keys")
	}
	for _, v := range pod.Containers[0].Env {
		assert.NotContains(t, v.Value, "@", "a password in clear text")
	}
}

// After preStop, a request has its grace, and the last releases have T.
func TestManifestLeavesTimeToEnd(t *testing.T) {
	deployment, _, _ := manifest(t)
	pod := deployment.Spec.Template.Spec
	preStop := time.Duration(pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
	assert.GreaterOrEqual(t, time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second, preStop+grace+config.Default().LeaseTTL)
	assert.Greater(t, grace, wait+longestHold, "a request waits, and then works")
}

func TestManifestProbesWhatTheServiceAnswers(t *testing.T) {
	deployment, _, _ := manifest(t)
	c := deployment.Spec.Template.Spec.Containers[0]
	for _, probe := range []*core.Probe{c.StartupProbe, c.LivenessProbe} {
		assert.Equal(t, "/healthz", probe.HTTPGet.Path, "no question to the backend")
		assert.Equal(t, "admin", probe.HTTPGet.Port.String())
	}
	assert.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path)
	assert.Greater(t, c.ReadinessProbe.TimeoutSeconds, int32(pingTime/time.Second), "the service answers before the probe gives up")
}

// The variables are those of package config and of main, with values that they take.
func TestManifestConfiguresTheService(t *testing.T) {
	deployment, _, _ := manifest(t)
	secret := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	names := map[string]string{"HTTP_ADDR": "", "GRPC_ADDR": "", "ADMIN_ADDR": "", "DATABASE_URL": ""}
	for _, v := range deployment.Spec.Template.Spec.Containers[0].Env {
		switch {
		case v.Name == "WLLOCK_INSTANCE":
			assert.Equal(t, "metadata.name", v.ValueFrom.FieldRef.FieldPath)
			v.Value = "shop-7c9f8"
		case v.Name == "WLLOCK_REDIS_PASSWORD_FILE":
			v.Value = secret
		}
		t.Setenv(v.Name, v.Value)
		delete(names, v.Name)
	}
	assert.Empty(t, names, "not set by the manifest")
	settings, err := config.FromEnv()
	require.NoError(t, err)
	assert.Equal(t, "shop", settings.SystemName)
	assert.Equal(t, "shop-7c9f8", settings.Instance)
}

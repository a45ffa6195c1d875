package kubetest

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testproc"
)

// Real is a kube-apiserver over an etcd, with RBAC. Namespace is there, in which the token of Kubeconfig has the rights of Verbs.
type Real struct {
	*testproc.Server
	token, admin string
}

// StartReal starts one: that of the command line, or what tools/kube-apiserver has built.
func StartReal(t testproc.TB) *Real {
	t.Helper()
	cache, err := os.UserCacheDir()
	testproc.Need(t, err)
	program, err := testproc.Find("kube-apiserver", filepath.Join(cache, "wllock"))
	testproc.Need(t, err)
	etcd, r := etcdtest.Start(t), &Real{token: rand.Text(), admin: rand.Text()}
	r.Server = testproc.Launch(t, testproc.Spec{
		Name: "kube-apiserver", FirstPort: 20000, LastPort: 32000, Patience: 2 * time.Minute,
		Prepare: r.prepare,
		Ready:   func(s *testproc.Server) bool { return r.ask(s, "/readyz", nil) == nil },
		Command: func(s *testproc.Server) testproc.Command {
			return testproc.Command{Path: program, Args: []string{
				"--etcd-servers=http://" + etcd.Addr, "--bind-address=127.0.0.1", fmt.Sprint("--secure-port=", s.Port), "--endpoint-reconciler-type=none",
				"--cert-dir=" + s.Dir, "--tls-cert-file=certificate", "--tls-private-key-file=key", "--token-auth-file=tokens", "--authorization-mode=RBAC",
				"--service-account-issuer=https://kubernetes.default.svc", "--service-account-signing-key-file=key", "--service-account-key-file=key",
				"--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount",
			}}
		},
	})
	const core, rbac = "/api/v1/namespaces", "/apis/rbac.authorization.k8s.io/v1/namespaces/" + Namespace
	name := named{"name": Namespace}
	for _, create := range []struct {
		path   string
		object named
	}{
		{core, named{"metadata": name}},
		{rbac + "/roles", named{"metadata": name, "rules": []named{{"apiGroups": []string{"coordination.k8s.io"}, "resources": []string{"leases"}, "verbs": Verbs}}}},
		{rbac + "/rolebindings", named{
			"metadata": name, "roleRef": named{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": Namespace},
			"subjects": []named{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "test"}},
		}},
	} {
		if err := r.ask(r.Server, create.path, create.object); err != nil {
			t.Fatalf("%s: %v", create.path, err)
		}
	}
	return r
}

// prepare writes what the server reads in its folder.
func (r *Real) prepare(dir string) error {
	own := certificate()
	key, err := x509.MarshalECPrivateKey(own.PrivateKey.(*ecdsa.PrivateKey))
	for name, text := range map[string][]byte{
		"certificate": pemOf(own), "key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key}),
		"tokens": fmt.Appendf(nil, "%s,admin,1,system:masters\n%s,test,2\n", r.admin, r.token),
	} {
		err = cmp.Or(err, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return err
}

// ask asks as the administrator, to create an object if there is one.
func (r *Real) ask(s *testproc.Server, path string, object any) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pemOf(certificate()))
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	method, body := http.MethodGet, []byte(nil)
	if object != nil {
		method = http.MethodPost
		body, _ = json.Marshal(object)
	}
	q, err := http.NewRequest(method, "https://"+s.Addr+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Authorization", "Bearer "+r.admin)
	q.Header.Set("Content-Type", "application/json")
	answer, err := c.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s", answer.Status)
	}
	return nil
}

// Kubeconfig writes one that leads to the server at an address, which may be that of a proxy, and returns its path.
func (r *Real) Kubeconfig(t testproc.TB, addr string) string {
	t.Helper()
	return kubeconfig(t, r.Dir, addr, named{"test": named{"token": r.token}})
}

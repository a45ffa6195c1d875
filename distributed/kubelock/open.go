package kubelock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/internal/openurl"
)

// New returns a Backend in a namespace of the cluster that config leads to, which stays the caller's. It asks nothing yet.
//
// No client-side rate limit is kept, whatever config says: a renewal that waits behind others loses a lease. The server's API Priority and
// Fairness limits what it takes.
func New(config *rest.Config, namespace string) (*Backend, error) {
	if config == nil {
		return nil, errors.New("kubelock: the config is nil")
	}
	if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
		return nil, fmt.Errorf("kubelock: the namespace %q: %s", namespace, wrong[0])
	}
	scheme := runtime.NewScheme() // of Leases alone: one of all objects is some ten megabytes
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("kubelock: %w", err)
	}
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &coordinationv1.SchemeGroupVersion, "/apis", serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.QPS, c.RateLimiter, c.WarningHandler, c.Timeout = -1, nil, rest.NoWarnings{}, 0
	if c.Dial == nil {
		c.Dial = (&net.Dialer{Timeout: exchangeTime}).DialContext
	}
	s := &store{namespace: namespace, conns: connrotation.NewDialer(c.Dial)}
	c.Dial = s.conns.DialContext
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("kubelock: %w", err)
	}
	s.client = client
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return &Backend{register.New("kubelock", s), s}, nil
}

// Open returns a Backend in the namespace that a URL names:
//
//	kubernetes://namespace[?context=...][&kubeconfig=...]
//
// In a Pod it is that of the Pod's cluster, by its service account. Elsewhere, or with a parameter, a kubeconfig leads to it: that file, or those
// of KUBECONFIG, or ~/.kube/config, and in it that context, or the current one. All processes give the same namespace of the same cluster.
func Open(rawURL string) (*Backend, error) {
	u, err := openurl.Parse(rawURL)
	if err != nil || u.Scheme != "kubernetes" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("kubelock: not the URL of a namespace: want kubernetes://namespace")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("kubelock: %w", err)
	}
	for option := range q {
		if option != "context" && option != "kubeconfig" || q.Get(option) == "" {
			return nil, fmt.Errorf("kubelock: the parameter %q is unknown or empty: want context and kubeconfig", option)
		}
	}
	config, err := rest.InClusterConfig()
	if len(q) > 0 || errors.Is(err, rest.ErrNotInCluster) {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = q.Get("kubeconfig")
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: q.Get("context")}).ClientConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("kubelock: %w", err)
	}
	return New(config, u.Host)
}

// Opener returns Open, for config.WithOpener, for the scheme kubernetes.
func Opener() func(context.Context, *url.URL) (distributed.Backend, error) {
	return openurl.Opener(func(rawURL string, _ ...struct{}) (*Backend, error) { return Open(rawURL) }, nil)
}

package s3lock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/internal/openurl"
)

type settings struct{ bucket, prefix string }

// Option changes how a Backend works.
type Option func(*settings)

// WithPrefix has the names of all objects begin with a folder: 1 to 128 letters, digits and . _ / -
func WithPrefix(folder string) Option { return func(s *settings) { s.prefix = folder + "/" } }

var (
	bucketName = regexp.MustCompile(`^[A-Za-z0-9._-]{3,63}$`)
	folderName = regexp.MustCompile(`^([A-Za-z0-9._-]+/)*$`)
)

// mostPrefix leaves room for the name of a key in S3's 1024 bytes.
const mostPrefix = 129

// New returns a Backend over a client, which stays the caller's. It asks nothing yet. The client's retries are not used.
func New(client *s3.Client, bucket string, opts ...Option) (*Backend, error) {
	s := &store{set: settings{bucket: bucket}, client: client}
	if err := openurl.Apply("s3lock", &s.set, opts); err != nil {
		return nil, err
	}
	switch {
	case client == nil:
		return nil, errors.New("s3lock: the client is nil")
	case !bucketName.MatchString(bucket):
		return nil, fmt.Errorf("s3lock: the bucket %q: want 3 to 63 letters, digits, . _ and -", bucket)
	case !folderName.MatchString(s.set.prefix) || len(s.set.prefix) > mostPrefix:
		return nil, fmt.Errorf("s3lock: the prefix %q: want 1 to 128 letters, digits and . _ / -", strings.TrimSuffix(s.set.prefix, "/"))
	}
	return &Backend{register.New("s3lock", s), s}, nil
}

// errURL does not show the URL, which may contain a secret.
var errURL = errors.New("s3lock: not the URL of a bucket: want s3://bucket/prefix, without a user: credentials come from the environment of the AWS SDK")

// Open returns a Backend on the bucket that a URL names, with a client of its own, which Close closes:
//
//	s3://bucket[/prefix][?region=eu-central-1][&endpoint=https://minio:9000][&path-style=true]
//
// Credentials, and the region unless it is given, are found as the AWS SDK does: environment, profiles, SSO, web identity, roles of containers
// and instances. AWS_CA_BUNDLE names a PEM file of authorities. endpoint is that of a service like S3, and path-style=true has the bucket in
// the path instead of the host's name. Open reads files, and does not connect.
func Open(rawURL string, opts ...Option) (*Backend, error) {
	u, err := openurl.Parse(rawURL)
	if err != nil || u.Host == "" || u.Scheme != "s3" || u.User != nil {
		return nil, errURL
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errURL
	}
	for name, values := range q {
		if name != "region" && name != "endpoint" && name != "path-style" || len(values) != 1 || values[0] == "" {
			return nil, fmt.Errorf("s3lock: the parameter %q of the URL: want region, endpoint and path-style, once each and with a value", name)
		}
	}
	pathStyle, err := strconv.ParseBool(q.Get("path-style"))
	if err != nil && q.Has("path-style") {
		return nil, fmt.Errorf("s3lock: path-style=%q: want true or false", q.Get("path-style"))
	}
	if e, err := url.Parse(q.Get("endpoint")); q.Has("endpoint") && (err != nil || e.Host == "" || e.User != nil || e.Scheme != "http" && e.Scheme != "https") {
		return nil, errors.New("s3lock: the parameter endpoint: want https://host:port, without a user")
	}
	conns := awshttp.NewBuildableClient().WithDialerOptions(func(d *net.Dialer) { d.Timeout = exchangeTime / 2 })
	cfg, err := config.LoadDefaultConfig(context.Background(), config.WithHTTPClient(conns), config.WithRegion(q.Get("region")))
	if err != nil {
		return nil, fmt.Errorf("s3lock: %w", err)
	}
	if cfg.Region == "" {
		return nil, errors.New("s3lock: no region: want region= in the URL, or AWS_REGION")
	}
	transport := cfg.HTTPClient.(*awshttp.BuildableClient).GetTransport() // with the authorities of AWS_CA_BUNDLE
	transport.MaxIdleConnsPerHost = 64                                    // as many as callers ask at a time
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.HTTPClient = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		o.UsePathStyle = pathStyle
		if q.Has("endpoint") {
			o.BaseEndpoint = aws.String(q.Get("endpoint"))
		}
		// Services like S3 may not know the checksums. Requests are signed with a hash of what they bring.
		o.RequestChecksumCalculation, o.ResponseChecksumValidation = aws.RequestChecksumCalculationWhenRequired, aws.ResponseChecksumValidationWhenRequired
	})
	var from []Option
	if folder := strings.Trim(u.Path, "/"); folder != "" {
		from = append(from, WithPrefix(folder))
	}
	b, err := New(client, u.Host, append(from, opts...)...)
	if err != nil {
		return nil, err
	}
	b.store.idle = transport.CloseIdleConnections
	return b, nil
}

// Opener returns Open with these options, for config.WithOpener, for the scheme s3.
func Opener(opts ...Option) func(context.Context, *url.URL) (distributed.Backend, error) {
	return openurl.Opener(Open, opts)
}

package s3lock

import (
	"cmp"
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

// bucketAndFolder leave room for the name of a key in S3's 1024 bytes.
var bucketAndFolder = regexp.MustCompile(`^[A-Za-z0-9._-]{3,63}/[A-Za-z0-9._/-]{0,128}$`)

// New returns a Backend over a client, which stays the caller's. It asks nothing yet. The names of all objects begin with folder and a slash, or
// folder is "". The client's retries are not used.
func New(client *s3.Client, bucket, folder string) (*Backend, error) {
	if folder = strings.Trim(folder, "/"); folder != "" {
		folder += "/"
	}
	switch {
	case client == nil:
		return nil, errors.New("s3lock: the client is nil")
	case !bucketAndFolder.MatchString(bucket + "/" + folder):
		return nil, fmt.Errorf("s3lock: the bucket %q and folder %q: want 3 to 63, and at most 127, letters, digits and . _ - (and / in the folder)", bucket, folder)
	}
	s := &store{client: client, bucket: bucket, folder: folder, idle: func() {}}
	return &Backend{register.New("s3lock", s), s}, nil
}

// errURL does not show the URL, which may contain a secret.
var errURL = errors.New("s3lock: not the URL of a bucket: want s3://bucket/folder, without a user: credentials come from the environment of the AWS SDK")

// Open returns a Backend on the bucket that a URL names, with a client of its own, which Close closes:
//
//	s3://bucket[/folder][?region=eu-central-1][&endpoint=https://minio:9000][&path-style=true]
//
// Credentials, and the region unless it is given, are found as the AWS SDK does: environment, profiles, SSO, web identity, roles of containers
// and instances. AWS_CA_BUNDLE names a PEM file of authorities. endpoint is that of a service like S3, and path-style=true has the bucket in
// the path instead of the host's name. Open reads files, and does not connect.
func Open(rawURL string) (*Backend, error) {
	u, err := openurl.Parse(rawURL)
	if err != nil || u.Host == "" || u.Scheme != "s3" || u.User != nil {
		return nil, errURL
	}
	q, err := openurl.OfAWS(u, "path-style")
	if err != nil {
		return nil, fmt.Errorf("s3lock: %w", err)
	}
	pathStyle, err := strconv.ParseBool(cmp.Or(q["path-style"], "false"))
	if err != nil {
		return nil, fmt.Errorf("s3lock: path-style=%q: want true or false", q["path-style"])
	}
	conns := awshttp.NewBuildableClient().WithDialerOptions(func(d *net.Dialer) { d.Timeout = exchangeTime / 2 })
	cfg, err := config.LoadDefaultConfig(context.Background(), config.WithHTTPClient(conns), config.WithRegion(q["region"]))
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
		if q["endpoint"] != "" {
			o.BaseEndpoint = aws.String(q["endpoint"])
		}
		// Services like S3 may not know the checksums. Requests are signed with a hash of what they bring.
		o.RequestChecksumCalculation, o.ResponseChecksumValidation = aws.RequestChecksumCalculationWhenRequired, aws.ResponseChecksumValidationWhenRequired
	})
	b, err := New(client, u.Host, u.Path)
	if err != nil {
		return nil, err
	}
	b.store.idle = transport.CloseIdleConnections
	return b, nil
}

// Opener returns Open, for config.WithOpener, for the scheme s3.
func Opener() func(context.Context, *url.URL) (distributed.Backend, error) {
	return openurl.Opener(func(rawURL string, _ ...any) (*Backend, error) { return Open(rawURL) }, nil)
}

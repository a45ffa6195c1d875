package dynamolock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/internal/openurl"
)

var tableName = regexp.MustCompile(`^[A-Za-z0-9._-]{3,255}$`)

// New returns a Backend over a client, which stays the caller's. It asks nothing yet. The client's retries are not used.
func New(client *dynamodb.Client, table string) (*Backend, error) {
	switch {
	case client == nil:
		return nil, errors.New("dynamolock: the client is nil")
	case !tableName.MatchString(table):
		return nil, fmt.Errorf("dynamolock: the table %q: want 3 to 255 letters, digits, . _ and -", table)
	}
	s := &store{table: table, client: client, idle: func() {}}
	return &Backend{register.New("dynamolock", s), s}, nil
}

// errURL does not show the URL, which may contain a secret.
var errURL = errors.New("dynamolock: not the URL of a table: want dynamodb://table, without a user: credentials come from the environment of the AWS SDK")

// Open returns a Backend on the table that a URL names, with a client of its own, which Close closes:
//
//	dynamodb://table[?region=eu-central-1][&endpoint=http://localhost:8000]
//
// Credentials, and the region unless it is given, are found as the AWS SDK does: environment, profiles, SSO, web identity, roles of containers
// and instances. AWS_CA_BUNDLE names a PEM file of authorities. endpoint is that of another service. Open reads files, and does not connect.
func Open(rawURL string) (*Backend, error) {
	u, err := openurl.Parse(rawURL)
	if err != nil || u.Host == "" || u.Scheme != "dynamodb" || u.User != nil || u.Path != "" && u.Path != "/" {
		return nil, errURL
	}
	q, err := openurl.OfAWS(u)
	if err != nil {
		return nil, fmt.Errorf("dynamolock: %w", err)
	}
	conns := awshttp.NewBuildableClient().WithDialerOptions(func(d *net.Dialer) { d.Timeout = exchangeTime / 2 })
	cfg, err := config.LoadDefaultConfig(context.Background(), config.WithHTTPClient(conns), config.WithRegion(q["region"]))
	if err != nil {
		return nil, fmt.Errorf("dynamolock: %w", err)
	}
	if cfg.Region == "" {
		return nil, errors.New("dynamolock: no region: want region= in the URL, or AWS_REGION")
	}
	transport := cfg.HTTPClient.(*awshttp.BuildableClient).GetTransport() // with the authorities of AWS_CA_BUNDLE
	transport.MaxIdleConnsPerHost = 64                                    // as many as callers ask at a time
	client := dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: transport}
		if q["endpoint"] != "" {
			o.BaseEndpoint = aws.String(q["endpoint"])
		}
	})
	b, err := New(client, u.Host)
	if err != nil {
		return nil, err
	}
	b.store.idle = transport.CloseIdleConnections
	return b, nil
}

// Opener returns Open, for config.WithOpener, for the scheme dynamodb.
func Opener() func(context.Context, *url.URL) (distributed.Backend, error) {
	return openurl.Opener(func(rawURL string, _ ...any) (*Backend, error) { return Open(rawURL) }, nil)
}

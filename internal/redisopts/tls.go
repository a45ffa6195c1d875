package redisopts

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/tlsfile"
)

// Dialer connects a client to a server.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// TakeTLS takes the parameters of TLS out of a URL of openurl.Parse with a scheme of SchemeOf.
func TakeTLS(u *url.URL) (tlsfile.Files, error) {
	s, _ := SchemeOf(u.Scheme)
	files, rest, err := tlsfile.Take(u.RawQuery, u.Scheme, s.TLS)
	u.RawQuery = rest
	return files, err
}

// DialerOf returns what connects with the files as they are then. nil: there are none, and go-redis connects. base is what the
// URL says beside them.
func DialerOf(files tlsfile.Files, base *tls.Config) (Dialer, error) {
	switch {
	case files == tlsfile.Files{}:
		return nil, nil
	case base.InsecureSkipVerify:
		return nil, errors.New("the parameter skip_verify has no use beside those of TLS: name the authority of the certificate by " + tlsfile.CA)
	}
	return files.Dial, nil
}

// ParseSingle returns what a URL of one server says: u is rawURL, as openurl.Parse has read it. Its errors show no credentials.
func ParseSingle(rawURL string, u *url.URL) (*redis.Options, error) {
	rest := *u
	files, err := TakeTLS(&rest)
	if err != nil {
		return nil, err
	}
	text, _, _ := strings.Cut(rawURL, "?")
	if err := oneDatabase(u, rest.Query()); err != nil {
		return nil, err
	}
	if s, _ := SchemeOf(u.Scheme); s.Kind == KindUnix {
		_, text, _ = strings.Cut(text, "://")
		text = "unix://" + text
	}
	if rest.RawQuery != "" {
		text += "?" + rest.RawQuery
	}
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, withoutURL(err)
	}
	o.Username, o.Password = credentials(u)
	o.Dialer, err = DialerOf(files, o.TLSConfig)
	return o, err
}

// oneDatabase refuses a URL of one server that names a host where none is used, no database that there is, or two.
func oneDatabase(u *url.URL, q url.Values) error {
	s, _ := SchemeOf(u.Scheme)
	path := strings.Trim(u.Path, "/")
	if s.Kind == KindUnix {
		if path = ""; u.Host != "" {
			return errors.New("a Unix socket has no host: want a path with three slashes, " + u.Scheme + ":///run/redis.sock")
		}
	}
	numbers := q["db"]
	if path != "" {
		numbers = append(numbers, path)
	}
	if len(numbers) > 1 {
		return errors.New("the URL names more than one database: want one, in the path or as the parameter db")
	}
	for _, text := range numbers {
		if _, err := database(text); err != nil {
			return err
		}
	}
	return nil
}

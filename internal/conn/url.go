package conn

import (
	"errors"
	"fmt"
	"strings"

	"github.com/wllock/wllock/internal/openurl"
	"github.com/wllock/wllock/internal/redisopts"
)

// Open is New for a URL. No error shows a part of the credentials.
func Open(rawURL string, c Config) (t Transport, name string, err error) {
	u, err := openurl.Parse(rawURL)
	if err != nil {
		return nil, "", fmt.Errorf("the address %w", err)
	}
	s, ok := redisopts.SchemeOf(u.Scheme)
	if !ok || s.Kind == redisopts.KindRedlock {
		return nil, "", fmt.Errorf("unknown scheme %q", u.Scheme)
	}
	if s.Kind == redisopts.KindUnix || s.Kind == redisopts.KindSingle {
		o, err := redisopts.ParseSingle(rawURL, u)
		if err != nil {
			return nil, "", err
		}
		return single(o, c, DialTimeout), nameOf(o), nil
	}
	if u.Host == "" {
		return nil, "", errors.New("the URL has no host")
	}
	if s.Kind == redisopts.KindSentinel {
		o, err := redisopts.ParseSentinel(u, s.TLS)
		if err != nil {
			return nil, "", err
		}
		return failover(o, c), "sentinel " + strings.Join(o.SentinelAddrs, ",") + "/" + o.MasterName, nil
	}
	o, err := redisopts.ParseCluster(u, s.TLS)
	if err != nil {
		return nil, "", err
	}
	return cluster(o, c), "cluster " + strings.Join(o.Addrs, ","), nil
}

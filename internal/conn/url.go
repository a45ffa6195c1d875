package conn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/redisopts"
)

// Open is New for a URL. No error shows a part of the credentials.
func Open(rawURL string, c Config) (t Transport, name string, err error) {
	u, err := redisopts.ParseURL(rawURL)
	if err != nil {
		return nil, "", fmt.Errorf("the address %w", err)
	}
	s, ok := redisopts.SchemeOf(u.Scheme)
	if !ok || s.Kind == redisopts.KindRedlock {
		return nil, "", fmt.Errorf("unknown scheme %q", u.Scheme)
	}
	switch s.Kind {
	case redisopts.KindUnix:
		_, rest, _ := strings.Cut(rawURL, "://")
		return openSingle("unix://"+rest, c)
	case redisopts.KindSingle:
		return openSingle(rawURL, c)
	}
	h, err := hostsOf(u)
	if err != nil {
		return nil, "", err
	}
	if s.TLS {
		h.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if s.Kind == redisopts.KindSentinel {
		return openSentinel(h, c)
	}
	return openCluster(h, c)
}

func openSingle(rawURL string, c Config) (Transport, string, error) {
	o, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, "", fmt.Errorf("%w", withoutURL(err))
	}
	return single(o, c, DialTimeout), nameOf(o), nil
}

// withoutURL takes the text of the URL, which may hold a password, out of a parse error.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return errors.New("the URL cannot be parsed")
	}
	return err
}

// hosts is what a URL with several hosts says.
type hosts struct {
	addrs              []string
	username, password string
	path               []string
	tls                *tls.Config
}

func hostsOf(u *url.URL) (hosts, error) {
	switch {
	case u.Host == "":
		return hosts{}, errors.New("the URL has no host")
	case u.RawQuery != "":
		return hosts{}, errors.New("a URL with several hosts takes no parameters")
	}
	h := hosts{addrs: strings.Split(u.Host, ","), username: u.User.Username()}
	h.password, _ = u.User.Password()
	if path := strings.Trim(u.Path, "/"); path != "" {
		h.path = strings.Split(path, "/")
	}
	return h, nil
}

// withPort adds the default port to the addresses that have none.
func withPort(addrs []string, port string) []string {
	for i, a := range addrs {
		if _, _, err := net.SplitHostPort(a); err != nil {
			addrs[i] = net.JoinHostPort(strings.Trim(a, "[]"), port)
		}
	}
	return addrs
}

func openSentinel(h hosts, c Config) (Transport, string, error) {
	if len(h.path) == 0 || len(h.path) > 2 {
		return nil, "", errors.New("the URL must name the primary: redis+sentinel://host/primary")
	}
	o := &redis.FailoverOptions{
		MasterName: h.path[0], SentinelAddrs: withPort(h.addrs, "26379"),
		Username: h.username, Password: h.password, TLSConfig: h.tls,
	}
	if len(h.path) == 2 {
		db, err := strconv.Atoi(h.path[1])
		if err != nil {
			return nil, "", fmt.Errorf("invalid database number %q", h.path[1])
		}
		o.DB = db
	}
	return failover(o, c), "sentinel " + strings.Join(o.SentinelAddrs, ",") + "/" + o.MasterName, nil
}

func openCluster(h hosts, c Config) (Transport, string, error) {
	if len(h.path) > 0 {
		return nil, "", errors.New("a cluster has no databases: the URL must end after the hosts")
	}
	o := &redis.ClusterOptions{Addrs: withPort(h.addrs, "6379"), Username: h.username, Password: h.password, TLSConfig: h.tls}
	return cluster(o, c), "cluster " + strings.Join(o.Addrs, ","), nil
}

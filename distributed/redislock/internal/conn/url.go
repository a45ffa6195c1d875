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
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok || strings.ContainsAny(scheme, ":@/?#") { // of what comes before, only the scheme is shown
		return nil, "", errors.New("redislock: not a URL: no scheme")
	}
	s, ok := redisopts.SchemeOf(scheme)
	if !ok {
		return nil, "", fmt.Errorf("redislock: unknown scheme %q", scheme)
	}
	switch s.Kind {
	case redisopts.KindUnix:
		return openSingle("unix://"+rest, c)
	case redisopts.KindSingle:
		return openSingle(rawURL, c)
	}
	h, err := parseHosts(rest)
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
	if misplaced(rawURL) {
		return nil, "", errors.New("redislock: the URL has one of / ? # in its credentials, or an @ after the host: percent-encode it")
	}
	o, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, "", fmt.Errorf("redislock: %w", withoutURL(err))
	}
	return single(o, c), nameOf(o), nil
}

// misplaced reports that a URL has an @ after its host. As a rule it ends a password that contains a / ? or #, which
// would be taken for a path, an option or a socket, and be shown as such.
func misplaced(rawURL string) bool {
	_, rest, _ := strings.Cut(rawURL, "://")
	end := strings.IndexAny(rest, "/?#")
	return end >= 0 && strings.ContainsRune(rest[end:], '@')
}

// withoutURL takes the text of the URL, which may hold a password, out of a parse error.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return errors.New("the URL cannot be parsed")
	}
	return err
}

// hosts is a URL with several hosts, which net/url does not parse.
type hosts struct {
	addrs              []string
	username, password string
	path               []string
	tls                *tls.Config
}

// parseHosts reads "[user[:password]@]host[:port][,host...][/path]".
func parseHosts(rest string) (hosts, error) {
	var h hosts
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		name, password, _ := strings.Cut(rest[:i], ":")
		var err1, err2 error
		h.username, err1 = url.PathUnescape(name)
		h.password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return h, errors.New("redislock: the URL's credentials are not percent-encoded correctly")
		}
		rest = rest[i+1:]
	}
	if strings.Contains(rest, "?") {
		return h, errors.New("redislock: a URL with several hosts takes no parameters")
	}
	addrs, path, _ := strings.Cut(rest, "/")
	for addr := range strings.SplitSeq(addrs, ",") {
		if addr == "" {
			return h, errors.New("redislock: the URL has an empty host")
		}
		h.addrs = append(h.addrs, addr)
	}
	if path = strings.Trim(path, "/"); path != "" {
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
		return nil, "", errors.New("redislock: the URL must name the primary: redis+sentinel://host/primary")
	}
	o := &redis.FailoverOptions{
		MasterName: h.path[0], SentinelAddrs: withPort(h.addrs, "26379"),
		Username: h.username, Password: h.password, TLSConfig: h.tls,
	}
	if len(h.path) == 2 {
		db, err := strconv.Atoi(h.path[1])
		if err != nil {
			return nil, "", fmt.Errorf("redislock: invalid database number %q", h.path[1])
		}
		o.DB = db
	}
	return failover(o, c), "sentinel " + strings.Join(o.SentinelAddrs, ",") + "/" + o.MasterName, nil
}

func openCluster(h hosts, c Config) (Transport, string, error) {
	if len(h.path) > 0 {
		return nil, "", errors.New("redislock: a cluster has no databases: the URL must end after the hosts")
	}
	o := &redis.ClusterOptions{Addrs: withPort(h.addrs, "6379"), Username: h.username, Password: h.password, TLSConfig: h.tls}
	return cluster(o, c), "cluster " + strings.Join(o.Addrs, ","), nil
}

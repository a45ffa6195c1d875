package redislock

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Open returns a Backend on the server a URL names:
//
//	redis://[user[:password]@]host[:port][/db]                one server
//	rediss://...                                              the same over TLS
//	unix://[user[:password]@]/path/to/socket[?db=n]           the same over a unix socket; also redis+unix://
//	redis+sentinel://[user[:password]@]host[:port][,host...]/primary[/db]   the primary the sentinels name
//	redis+cluster://[user[:password]@]host[:port][,host...]   a cluster, found from any of its nodes
//
// rediss+sentinel and rediss+cluster are the same over TLS. redis, rediss and unix take the query parameters of
// redis.ParseURL. A password is better kept in a file, see WithPasswordFile; no error of this package shows one.
// Like New, Open does not connect.
func Open(rawURL string, opts ...Option) (*Backend, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok || strings.ContainsAny(scheme, ":@/?#") { // of what comes before, the scheme alone is shown
		return nil, errors.New("redislock: not a URL: no scheme")
	}
	switch scheme {
	case "redis", "rediss", "unix":
		return openSingle(rawURL, s)
	case "redis+unix":
		return openSingle("unix://"+rest, s)
	case "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster":
		a, err := parseGroup(rest)
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(scheme, "rediss") {
			a.tls = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		if strings.HasSuffix(scheme, "sentinel") {
			return openSentinel(a, s)
		}
		return openCluster(a, s)
	default:
		return nil, fmt.Errorf("redislock: unknown scheme %q", scheme)
	}
}

func openSingle(rawURL string, s settings) (*Backend, error) {
	if misplaced(rawURL) {
		return nil, errors.New("redislock: the URL has one of / ? # in its credentials, or an @ after the host: percent-encode it")
	}
	o, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("redislock: %w", withoutURL(err))
	}
	name := nameOf(o)
	return newBackend(single(o, s), name, s), nil
}

// misplaced reports that a URL has an @ behind its host. As a rule that is the one behind a password with a / ? or # in it,
// which would be taken for a path, an option or a socket, and shown as such.
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

// target is a URL with several hosts, which net/url does not parse.
type target struct {
	addrs              []string
	username, password string
	path               []string
	tls                *tls.Config
}

// parseGroup reads "[user[:password]@]host[:port][,host...][/path]". Its errors show no part of the credentials.
func parseGroup(rest string) (target, error) {
	var g target
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		name, password, _ := strings.Cut(rest[:i], ":")
		var err1, err2 error
		g.username, err1 = url.PathUnescape(name)
		g.password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return g, errors.New("redislock: the URL's credentials are not escaped well")
		}
		rest = rest[i+1:]
	}
	if strings.Contains(rest, "?") {
		return g, errors.New("redislock: a URL with several hosts takes no parameters")
	}
	hosts, path, _ := strings.Cut(rest, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return g, errors.New("redislock: the URL has an empty host")
		}
		g.addrs = append(g.addrs, host)
	}
	if path = strings.Trim(path, "/"); path != "" {
		g.path = strings.Split(path, "/")
	}
	return g, nil
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

func openSentinel(g target, s settings) (*Backend, error) {
	if len(g.path) == 0 || len(g.path) > 2 {
		return nil, errors.New("redislock: the URL must name the primary: redis+sentinel://host/primary")
	}
	o := &redis.FailoverOptions{
		MasterName: g.path[0], SentinelAddrs: withPort(g.addrs, "26379"),
		Username: g.username, Password: g.password, TLSConfig: g.tls,
	}
	if len(g.path) == 2 {
		db, err := strconv.Atoi(g.path[1])
		if err != nil {
			return nil, fmt.Errorf("redislock: invalid database number %q", g.path[1])
		}
		o.DB = db
	}
	name := "sentinel " + strings.Join(o.SentinelAddrs, ",") + "/" + o.MasterName
	return newBackend(failover(o, s), name, s), nil
}

func openCluster(g target, s settings) (*Backend, error) {
	if len(g.path) > 0 {
		return nil, errors.New("redislock: a cluster has no databases: the URL must end after the hosts")
	}
	o := &redis.ClusterOptions{Addrs: withPort(g.addrs, "6379"), Username: g.username, Password: g.password, TLSConfig: g.tls}
	return newBackend(cluster(o, s), "cluster "+strings.Join(o.Addrs, ","), s), nil
}

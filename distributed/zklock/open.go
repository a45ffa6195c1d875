package zklock

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// Open returns a Backend on the ensemble that a URL names:
//
//	zk://[user:password@]host[:port][,host[:port]...][/chroot]
//
// All nodes are kept below the chroot (default [DefaultRoot]), which is created if it is missing. A password is better kept in a
// file, see WithAuthFile; no error of this package shows one. Like New, Open does not connect.
func Open(rawURL string, opts ...Option) (*Backend, error) {
	servers, u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	var fromURL []Option
	if u.User != nil {
		password, _ := u.User.Password()
		fromURL = append(fromURL, WithAuth(u.User.Username(), password))
	}
	all := append(fromURL, opts...)
	if strings.Trim(u.Path, "/") != "" {
		all = append(all, WithRoot(u.Path))
	}
	return New(servers, all...)
}

// errURL does not show the URL, which may contain a password.
var errURL = errors.New("zklock: not the URL of an ensemble: want zk://host:port,host:port/chroot, with / ? # and @ in a password " +
	"percent-encoded")

// hostPattern is one server: a name or an address, and a port.
var hostPattern = regexp.MustCompile(`^(\[[0-9A-Za-z:.%]+\]|[0-9A-Za-z._-]+)(:[0-9]{1,5})?$`)

// parseURL splits off the servers, of which there may be several, and leaves the rest to net/url.
func parseURL(text string) ([]string, *url.URL, error) {
	rest, found := strings.CutPrefix(text, "zk://")
	authority, path, _ := strings.Cut(rest, "/")
	if !found || strings.ContainsAny(path, "@?#") || strings.ContainsAny(authority, "?#") {
		return nil, nil, errURL
	}
	at := strings.LastIndexByte(authority, '@') + 1
	u, err := url.Parse("zk://" + authority[:at] + "/" + path)
	if err != nil {
		return nil, nil, errURL
	}
	servers := strings.Split(authority[at:], ",")
	for i, host := range servers {
		if !hostPattern.MatchString(host) {
			return nil, nil, errURL
		}
		servers[i] = withPort(host)
	}
	return servers, u, nil
}

// defaultPort is ZooKeeper's.
const defaultPort = "2181"

func withPort(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		return host
	}
	return host + ":" + defaultPort
}

package redisopts

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

var (
	errNoURL    = errors.New("is not a URL")
	errReserved = errors.New("has one of / ? # in its user name or password, or an @ or # after the host: " +
		"percent-encode it")
	errHost = errors.New("has no host, or none of the form host:port,host:port")
)

// hostPattern is one host of a list: a name or an address, and a port.
var hostPattern = regexp.MustCompile(`^(\[[0-9A-Za-z:.%]+\]|[0-9A-Za-z._-]+)(:[0-9]{1,5})?$`)

// ParseURL splits off the hosts, of which there may be several, and leaves the rest to net/url. It makes sure that the
// password is where it belongs: if that contains / ? or #, the real @ ends up behind the host, and an @ there is refused. The
// error, which continues a sentence about the URL, does not show any of it.
func ParseURL(text string) (*url.URL, error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return nil, errNoURL
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	if strings.ContainsAny(tail, "@#") {
		return nil, errReserved
	}
	at := strings.LastIndexByte(authority, '@') + 1
	u, err := url.Parse(scheme + "://" + authority[:at] + tail)
	if err != nil {
		return nil, errNoURL // its own error would show the password
	}
	u.Host = authority[at:]
	if u.Host == "" {
		if u.User == nil || u.Path != "" { // memory://, unix://user:password@/socket
			return u, nil
		}
		return nil, errHost
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		if !hostPattern.MatchString(host) {
			return nil, errHost
		}
	}
	return u, nil
}

// Package openurl reads what is alike in the URLs of all backends: hosts, of which there may be several, a password file, and the
// parameters of TLS.
package openurl

import (
	"errors"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

var (
	errNoURL    = errors.New("is not a URL")
	errReserved = errors.New("has one of / ? # in its user name or password, or an @ or # after the host: " +
		"percent-encode it")
	errUnseen = errors.New("has a line end, a byte order mark, or another character that is not seen")
	errHost   = errors.New("has no host, or none of the form host:port,host:port (one with a zone is [fe80::1%25eth0])")
	errPort   = errors.New("has a port above 65535")
)

const maxPort = 1<<16 - 1

// hostPattern is one host of a list: a name or an address, which may have a zone, and a port.
var hostPattern = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+(?:%25[0-9A-Za-z._-]+)?\]|[0-9A-Za-z._-]+)(:[0-9]{1,5})?$`)

// CheckSeen refuses a text with a character that files and shells bring along unseen: a control character, among them line
// ends, or a byte order mark. The error is like that of Parse.
func CheckSeen(text string) error {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufeff' }) {
		return errUnseen
	}
	return nil
}

// Parse splits off the hosts, of which there may be several, and leaves the rest to net/url. It makes sure that the
// password is where it belongs: if that contains / ? or #, the real @ ends up behind the host, and an @ there is refused. The
// error, which continues a sentence about the URL, does not show any of it.
func Parse(text string) (*url.URL, error) {
	if err := CheckSeen(text); err != nil {
		return nil, err
	}
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
		part := hostPattern.FindStringSubmatch(host)
		if part == nil {
			return nil, errHost
		}
		if port, _ := strconv.Atoi(strings.TrimPrefix(part[2], ":")); port > maxPort {
			return nil, errPort
		}
	}
	u.Host = strings.ReplaceAll(u.Host, "%25", "%") // as net/url has it
	return u, nil
}

// WithPorts returns the hosts of a list that Parse has let pass, with the default port for those that have none.
func WithPorts(hosts, port string) []string {
	all := strings.Split(hosts, ",")
	for i, host := range all {
		all[i] = WithPort(host, port)
	}
	return all
}

// WithPort returns a host with the default port, if it has none.
func WithPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

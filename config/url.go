package config

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// URL names a backend. It may contain a password, which is not shown.
type URL struct {
	text Secret
}

// NewURL returns a URL; Config.Validate checks it.
func NewURL(text string) URL { return URL{text: NewSecret(text)} }

// Reveal returns the URL unchanged, with its password.
func (u URL) Reveal() string { return u.text.Reveal() }

// Parse returns the URL with its password. Unlike net/url it accepts a list of hosts with ports, as in
// redis+sentinel://a:26379,b:26379/main, and its error does not show the URL.
func (u URL) Parse() (*url.URL, error) { return parseURL(u.Reveal()) }

// String returns the URL without possible secrets: the password, a user name without password, and the options, which may
// contain passwords too. If the text is not a URL, it shows nothing of it.
func (u URL) String() string {
	if u.Reveal() == "" {
		return ""
	}
	parsed, err := u.Parse()
	if err != nil {
		return "(not a URL, not shown)"
	}
	var b strings.Builder
	b.WriteString(parsed.Scheme + "://")
	if _, hasPassword := parsed.User.Password(); hasPassword {
		b.WriteString(url.User(parsed.User.Username()).String() + ":" + hidden + "@")
	} else if parsed.User != nil {
		b.WriteString(hidden + "@")
	}
	b.WriteString(parsed.Host + parsed.EscapedPath())
	if parsed.RawQuery != "" {
		b.WriteString("?" + hidden)
	}
	return b.String()
}

// GoString is String for %#v.
func (u URL) GoString() string { return u.String() }

// MarshalText is String for encoders.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Decode implements envconfig.Decoder.
func (u *URL) Decode(text string) error {
	*u = NewURL(strings.TrimSpace(text))
	return nil
}

func (u URL) fault() string {
	if _, err := u.Parse(); err != nil {
		return err.Error()
	}
	return ""
}

var (
	errNoURL    = errors.New("is not a URL")
	errReserved = errors.New("has one of / ? # in its user name or password, or an @ or # after the host: " +
		"percent-encode it")
	errHost = errors.New("has no host, or none of the form host:port,host:port")
)

// hostPattern is one host of a list: a name or an address, and a port.
var hostPattern = regexp.MustCompile(`^(\[[0-9A-Za-z:.%]+\]|[0-9A-Za-z._-]+)(:[0-9]{1,5})?$`)

// parseURL splits off the hosts and leaves the rest to net/url. It makes sure that the password is where it belongs: if that
// contains / ? or #, the real @ ends up behind the host, and an @ there is refused.
func parseURL(text string) (*url.URL, error) {
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

package config

import (
	"net/url"
	"strings"

	"github.com/wllock/wllock/internal/openurl"
)

// URL names a backend. It may contain a password, which is never shown.
type URL struct {
	text Secret
}

// NewURL returns a URL. Config.Validate checks it.
func NewURL(text string) URL { return URL{text: NewSecret(text)} }

// Reveal returns the URL unchanged, with its password.
func (u URL) Reveal() string { return u.text.Reveal() }

// Parse returns the URL with its password. Unlike net/url it accepts a list of hosts with ports, as in
// redis+sentinel://a:26379,b:26379/main, and its error does not show the URL.
func (u URL) Parse() (*url.URL, error) { return openurl.Parse(u.Reveal()) }

// String returns the URL without possible secrets: the password, a user name without password, and the options, which may contain passwords too.
// If the text is not a URL, String shows none of it.
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
	b.WriteString(strings.ReplaceAll(parsed.Host, "%", "%25") + parsed.EscapedPath())
	if parsed.RawQuery != "" {
		b.WriteString("?" + hidden)
	}
	return b.String()
}

// GoString returns what String returns, for %#v.
func (u URL) GoString() string { return u.String() }

// MarshalText returns what String returns, for encoders.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Decode implements envconfig.Decoder.
func (u *URL) Decode(text string) error {
	*u = NewURL(strings.TrimSpace(text))
	return nil
}

func (u URL) fault() string {
	if u.Reveal() == "" {
		return "is required"
	}
	if _, err := u.Parse(); err != nil {
		return err.Error()
	}
	return ""
}

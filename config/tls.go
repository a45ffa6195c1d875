package config

import (
	"net/url"
	"slices"

	"github.com/wllock/wllock/internal/redisopts"
	"github.com/wllock/wllock/internal/tlsfile"
)

const tlsAllowed = "nothing, or if WLLOCK_BACKEND is over TLS, such as rediss://, "

// plainSchemes are those of wllock's backends, beside Redis, that are never over TLS. A program's own may be.
var plainSchemes = []string{"memory", "sqlite", "etcd", "zk", "memcached"}

// tlsFault returns what is wrong with a setting of TLS, by the files that it names.
func (c Config) tlsFault(value string, files tlsfile.Files) string {
	u, err := c.Backend.Parse()
	if value == "" || err != nil { // a problem of its own
		return ""
	}
	if s, isRedis := redisopts.SchemeOf(u.Scheme); isRedis && !s.TLS || slices.Contains(plainSchemes, u.Scheme) {
		return "is set, but WLLOCK_BACKEND is not over TLS"
	}
	if _, err = files.Config(""); err != nil {
		return "is refused: " + err.Error()
	}
	return ""
}

// tlsPair returns certificate and key, unless one of them is the URL's: then the backend finds out whether they fit.
func (c Config) tlsPair() tlsfile.Files {
	if c.TLSCert == "" || c.TLSKey == "" {
		return tlsfile.Files{}
	}
	return tlsfile.Files{Cert: c.TLSCert, Key: c.TLSKey}
}

// addTLS adds the settings of TLS to a URL that does not have them.
func (c Config) addTLS(u *url.URL) {
	if u.Scheme == "etcds" {
		u.RawQuery = tlsfile.Renamed(u.RawQuery)
	}
	q := u.Query()
	for _, one := range [][2]string{{tlsfile.CA, c.TLSCa}, {tlsfile.Cert, c.TLSCert}, {tlsfile.Key, c.TLSKey}, {tlsfile.ServerName, c.TLSServerName}} {
		if name, value := one[0], one[1]; value != "" && !q.Has(name) {
			if u.RawQuery != "" {
				u.RawQuery += "&"
			}
			u.RawQuery += name + "=" + url.QueryEscape(value)
		}
	}
}

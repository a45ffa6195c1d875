package openurl

import (
	"context"
	"errors"
	"net/url"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/tlsfile"
)

// PasswordFile is the parameter that names a file with the password of the URL's user.
const PasswordFile = "password-file"

// Access returns what the parameters of a URL say of TLS and of a password file ("": none), and refuses all others. Where the URL is not
// secure, those of TLS are refused. The error names the scheme that has them.
func Access(u *url.URL, secureScheme string) (files tlsfile.Files, passwordFile string, err error) {
	files, rest, err := tlsfile.Take(u.RawQuery, u.Scheme, u.Scheme == secureScheme)
	if err != nil {
		return files, "", err
	}
	q, err := url.ParseQuery(rest)
	passwordFile = q.Get(PasswordFile)
	password, _ := u.User.Password()
	switch {
	case err != nil, len(q) > 1, len(q) == 1 && passwordFile == "":
		err = errors.New("the URL has an unknown parameter: want " + PasswordFile + ", and with " + secureScheme + " also " + tlsfile.Names)
	case passwordFile != "" && (u.User.Username() == "" || password != ""):
		err = errors.New(PasswordFile + " wants a user in the URL, and no password")
	}
	return files, passwordFile, err
}

// Opener makes an Open of config.WithOpener from that of a backend.
func Opener[B distributed.Backend, O any](open func(rawURL string, opts ...O) (B, error), opts []O) func(context.Context, *url.URL) (distributed.Backend, error) {
	return func(_ context.Context, u *url.URL) (distributed.Backend, error) {
		b, err := open(u.String(), opts...)
		if err != nil {
			return nil, err // not a nil B in an interface
		}
		return b, nil
	}
}

// Apply has the options of a backend change its settings. One that is nil is refused.
func Apply[S any, O ~func(*S)](backend string, settings *S, opts []O) error {
	for _, o := range opts {
		if o == nil {
			return errors.New(backend + ": an option is nil")
		}
		o(settings)
	}
	return nil
}

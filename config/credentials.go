package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"syscall"

	"github.com/wllock/wllock/internal/openurl"
	"github.com/wllock/wllock/internal/passfile"
	"github.com/wllock/wllock/internal/redisopts"
	"github.com/wllock/wllock/internal/tlsfile"
)

// target returns the backend's URL with the credentials, and the files of TLS, of the other settings in it. c is valid.
func (c Config) target() (*url.URL, error) {
	u, err := c.Backend.Parse()
	if err != nil {
		return nil, err
	}
	user := u.User.Username() + c.RedisUsername // Validate has checked that one of them is empty
	password, has := u.User.Password()
	switch {
	case c.password() != "":
		password, has = c.password(), true
	case c.RedisPasswordFile != "":
		if password, err = readPassword(c.RedisPasswordFile); err != nil {
			return nil, fmt.Errorf("wllock: WLLOCK_REDIS_PASSWORD_FILE %w", err)
		}
		has = true
	}
	switch {
	case has:
		u.User = url.UserPassword(user, password)
	case user != "":
		u.User = url.User(user)
	}
	c.addTLS(u)
	return u, nil
}

// secretsOf lists the parts of a URL that must not be shown.
func secretsOf(u *url.URL) []string {
	password, _ := u.User.Password()
	secrets := []string{password, u.RawQuery}
	if !hasPassword(u) {
		secrets = append(secrets, u.User.Username())
	}
	for name, values := range u.Query() {
		if new(tlsfile.Files).Field(name) != nil { // errors show the path of a file that is wrong
			continue
		}
		for _, v := range values {
			if len(v) >= longSetting || secretName(name) {
				secrets = append(secrets, v)
			}
		}
	}
	return secrets
}

// longSetting is the length from which an option's value counts as a secret, whatever its name: longer than numbers and
// times, which occur in errors for other reasons.
const longSetting = 8

// secretName reports whether the name of an option suggests a secret.
func secretName(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"pass", "pwd", "secret", "token", "key", "auth", "cred", "user", "sig"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

func (c Config) usernameFault() string {
	if c.RedisUsername == "" {
		return ""
	}
	if err := openurl.CheckSeen(c.RedisUsername); err != nil {
		return err.Error()
	}
	return c.misplaced("a user name", func(u *url.URL) bool { return u.User.Username() != "" })
}

// password returns that of WLLOCK_REDIS_PASSWORD, read as a password file is; "": there is none, or passwordFault says why.
func (c Config) password() string {
	password, _ := passfile.Clean(c.RedisPassword.Reveal())
	return password
}

func (c Config) passwordFault() string {
	switch password, err := passfile.Clean(c.RedisPassword.Reveal()); {
	case err != nil:
		return err.Error()
	case password == "":
		return ""
	}
	return c.misplaced("a password", hasPassword)
}

func (c Config) passwordFileFault() string {
	if c.RedisPasswordFile == "" {
		return ""
	}
	if wrong := c.misplaced("a password", hasPassword); wrong != "" {
		return wrong
	}
	if c.password() != "" {
		return "is set, but WLLOCK_REDIS_PASSWORD is set too"
	}
	if _, err := readPassword(c.RedisPasswordFile); err != nil {
		return err.Error()
	}
	return ""
}

// misplaced returns why a credential cannot be added to the backend's URL, or "".
func (c Config) misplaced(what string, has func(*url.URL) bool) string {
	u, err := c.Backend.Parse()
	switch {
	case err != nil: // a problem of its own
		return ""
	case !isRedis(u):
		return "is set, but WLLOCK_BACKEND is not Redis"
	case has(u):
		return "is set, but WLLOCK_BACKEND has " + what + " too"
	}
	return ""
}

func isRedis(u *url.URL) bool {
	_, ok := redisopts.SchemeOf(u.Scheme)
	return ok
}

func hasPassword(u *url.URL) bool {
	_, has := u.User.Password()
	return has
}

// readPassword returns the password in a file. Its error does not show the path, which may be the password itself, set in
// the wrong variable.
func readPassword(path string) (string, error) {
	password, err := passfile.Read(path)
	for _, wrong := range []error{passfile.ErrNotOneLine, passfile.ErrNotRegular} {
		if errors.Is(err, wrong) {
			return "", fault("names a file that " + wrong.Error())
		}
	}
	if err != nil {
		return "", fault("names a file that cannot be read: " + reason(err))
	}
	if password == "" {
		return "", fault("names an empty file")
	}
	return password, nil
}

// reason is what the system says, which shows nothing of ours.
func reason(err error) string {
	var errno syscall.Errno
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded.Error()
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, fs.ErrInvalid):
		return fs.ErrInvalid.Error()
	}
	return "input/output error"
}

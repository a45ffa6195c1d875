package conn

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9/auth"

	"github.com/wllock/wllock/internal/passfile"
	"github.com/wllock/wllock/internal/redisopts"
)

// The ways to give a client its credentials, beside two fields. go-redis uses the last of them that is set.
type (
	provider        = func() (username, password string)
	contextProvider = func(context.Context) (username, password string, err error)
	streamProvider  = auth.StreamingCredentialsProvider
)

// authenticate gives the Config's credentials precedence over the client's. What the Config does not name stays the
// client's, wherever that has it from. A stream goes on, unless its passwords are not wanted.
func (c Config) authenticate(username, password *string, p *provider, cp *contextProvider, stream *streamProvider) {
	switch {
	case c.Username == "" && c.PasswordFile == "":
	case c.PasswordFile == "" && *stream != nil:
		*stream = renaming{*stream, c.Username}
	default:
		*cp, *stream = c.override(given(*username, *password, *p, *cp, *stream)), nil
	}
}

// given returns the client's own credentials.
func given(username, password string, p provider, cp contextProvider, stream streamProvider) contextProvider {
	switch {
	case stream != nil:
		return func(context.Context) (string, string, error) { return current(stream) }
	case cp != nil:
		return cp
	case p != nil:
		return func(context.Context) (string, string, error) {
			username, password := p()
			return username, password, nil
		}
	}
	return func(context.Context) (string, string, error) { return username, password, nil }
}

// current returns what a stream says now.
func current(stream streamProvider) (username, password string, err error) {
	c, end, err := stream.Subscribe(discard{})
	if err != nil {
		return "", "", err
	}
	username, password = c.BasicAuth()
	return username, password, end()
}

// discard ignores all events of a stream.
type discard struct{}

func (discard) OnNext(auth.Credentials) {}
func (discard) OnError(error)           {}

// override returns what the Config names, and otherwise the client's own.
func (c Config) override(client contextProvider) contextProvider {
	return func(ctx context.Context) (string, string, error) {
		username, password, err := client(ctx)
		if err != nil {
			return "", "", err
		}
		if c.Username != "" {
			username = c.Username
		}
		if c.PasswordFile != "" {
			if password, err = passfile.Read(c.PasswordFile); err != nil {
				return "", "", fmt.Errorf("read the password: %w", err)
			}
		}
		return username, redisopts.PasswordOf(username, password), nil
	}
}

// renaming is a stream of another user's passwords.
type renaming struct {
	streamProvider
	username string
}

// Subscribe implements auth.StreamingCredentialsProvider.
func (r renaming) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	c, end, err := r.streamProvider.Subscribe(renamed{l, r.username})
	if err != nil {
		return nil, end, err
	}
	return rename(c, r.username), end, nil
}

// renamed listens to it. Two of one listener are equal, as the stream demands.
type renamed struct {
	auth.CredentialsListener
	username string
}

// OnNext implements auth.CredentialsListener.
func (r renamed) OnNext(c auth.Credentials) { r.CredentialsListener.OnNext(rename(c, r.username)) }

func rename(c auth.Credentials, username string) auth.Credentials {
	_, password := c.BasicAuth()
	return auth.NewBasicCredentials(username, password)
}

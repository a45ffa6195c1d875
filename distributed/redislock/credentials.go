package redislock

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9/auth"
)

// The ways in which a client can be told who it is, beside two fields. go-redis goes by the last of them that is set.
type (
	provider        = func() (username, password string)
	contextProvider = func(context.Context) (username, password string, err error)
	streamProvider  = auth.StreamingCredentialsProvider
)

// authenticate puts the credentials of the options before the client's. What the options do not name stays the client's,
// wherever that has it from. A stream goes on, unless its passwords are not wanted.
func (s settings) authenticate(username, password *string, p *provider, c *contextProvider, stream *streamProvider) {
	switch {
	case s.username == "" && s.passwordFile == "":
	case s.passwordFile == "" && *stream != nil:
		*stream = renaming{*stream, s.username}
	default:
		*c, *stream = s.before(asked(*username, *password, *p, *c, *stream)), nil
	}
}

// asked is who the client says it is.
func asked(username, password string, p provider, c contextProvider, stream streamProvider) contextProvider {
	switch {
	case stream != nil:
		return func(context.Context) (string, string, error) { return current(stream) }
	case c != nil:
		return c
	case p != nil:
		return func(context.Context) (string, string, error) {
			username, password := p()
			return username, password, nil
		}
	}
	return func(context.Context) (string, string, error) { return username, password, nil }
}

// current is what a stream says now.
func current(stream streamProvider) (username, password string, err error) {
	c, end, err := stream.Subscribe(deaf{})
	if err != nil {
		return "", "", err
	}
	username, password = c.BasicAuth()
	return username, password, end()
}

// deaf listens to nothing.
type deaf struct{}

func (deaf) OnNext(auth.Credentials) {}
func (deaf) OnError(error)           {}

// before answers with what the options name, and else with what the client says.
func (s settings) before(client contextProvider) contextProvider {
	return func(ctx context.Context) (string, string, error) {
		username, password, err := client(ctx)
		if err != nil {
			return "", "", err
		}
		if s.username != "" {
			username = s.username
		}
		if s.passwordFile == "" {
			return username, password, nil
		}
		text, err := os.ReadFile(s.passwordFile)
		if err != nil {
			return "", "", fmt.Errorf("redislock: read the password: %w", err)
		}
		return username, strings.TrimRight(string(text), " \t\r\n"), nil
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

package redislock

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

func TestPasswordFromAFileCanChange(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--requirepass", "first-secret")
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("first-secret\n"), 0o600))
	u := newUser(t, byURL(t, "redis://"+s.Addr, WithPasswordFile(file)))
	release(t, u.lease(key(t)))

	admin := s.Client(func(o *redis.Options) { o.Password = "first-secret" })
	require.NoError(t, admin.ConfigSet(t.Context(), "requirepass", "second-secret").Err())
	require.NoError(t, os.WriteFile(file, []byte("second-secret\n"), 0o600))
	for _, kind := range []string{"normal", "pubsub"} {
		require.NoError(t, admin.ClientKillByFilter(t.Context(), "TYPE", kind, "SKIPME", "yes").Err())
	}
	release(t, u.get(key(t)))
}

// stream is a streaming provider of credentials that do not change.
type stream struct{ username, password string }

func (s stream) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	return auth.NewBasicCredentials(s.username, s.password), func() error { return nil }, nil
}

// connectedAs returns the users of all connections, subscriptions included, but those of the test itself.
func connectedAs(s *redistest.Server) []string {
	clients, _ := s.Do("CLIENT", "LIST").(string)
	var users []string
	for f := range strings.FieldsSeq(clients) {
		if user, ok := strings.CutPrefix(f, "user="); ok && user != "default" {
			users = append(users, user)
		}
	}
	slices.Sort(users)
	return slices.Compact(users)
}

// TestCredentialsGoBeforeTheClients, from wherever the client has its own.
func TestCredentialsGoBeforeTheClients(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, name := range []string{"locks", "other"} {
		s.Do("ACL", "SETUSER", name, "on", ">right", "~*", "&*", "+@all")
	}
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("right"), 0o600))
	sources := map[string]func(username, password string) *redis.Options{
		"fields": func(username, password string) *redis.Options {
			return &redis.Options{Username: username, Password: password}
		},
		"provider": func(username, password string) *redis.Options {
			return &redis.Options{CredentialsProvider: func() (string, string) { return username, password }}
		},
		"provider with context": func(username, password string) *redis.Options {
			return &redis.Options{CredentialsProviderContext: func(context.Context) (string, string, error) { return username, password, nil }}
		},
		"stream": func(username, password string) *redis.Options {
			return &redis.Options{StreamingCredentialsProvider: stream{username, password}}
		},
	}
	for name, c := range map[string]struct {
		password, user string // the client's password, and who is connected
		opts           []Option
	}{
		"user":     {"right", "locks", []Option{WithUsername("locks")}},
		"password": {"stale", "other", []Option{WithPasswordFile(file)}},
		"both":     {"stale", "locks", []Option{WithUsername("locks"), WithPasswordFile(file)}},
		"none":     {"right", "other", nil},
	} {
		for source, options := range sources {
			t.Run(name+"/"+source, func(t *testing.T) {
				o := options("other", c.password)
				o.Addr = s.Addr
				client := redis.NewClient(o)
				defer client.Close()
				require.NoError(t, with(t, client, c.opts...).Ping(t.Context()))
				require.Equal(t, []string{c.user}, connectedAs(s))
			})
		}
	}
}

func TestWrongPasswordIsSaidWithoutIt(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--requirepass", "right-secret")
	for name, c := range map[string]struct{ url, says string }{
		"none":  {"redis://" + s.Addr, "NOAUTH"},
		"wrong": {"redis://:wrong-secret@" + s.Addr, "WRONGPASS"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			err := newUser(t, byURL(t, c.url)).fails(t.Context(), key(t))
			require.ErrorIs(t, err, distributed.ErrUnavailable)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "secret")
			testscope.InTime(t, time.Since(start), time.Second, "the answer")
		})
	}
}

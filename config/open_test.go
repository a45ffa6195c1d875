package config_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

func valid() config.Config {
	c := config.Default()
	c.SystemName, c.Backend = "order", config.NewURL("memory://")
	return c
}

// at is valid with another backend.
func at(url string) config.Config {
	c := valid()
	c.Backend = config.NewURL(url)
	return c
}

// opens returns an opener with one answer for all.
func opens(b distributed.Backend, err error) config.Opener {
	return func(context.Context, *url.URL) (distributed.Backend, error) { return b, err }
}

// spy is a backend that records the last request and whether it was closed.
type spy struct {
	distributed.Backend
	asked  distributed.Request
	ping   error
	closed bool
}

func (s *spy) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	s.asked = req
	return s.Backend.Enter(ctx, req)
}

func (s *spy) Ping(context.Context) error { return s.ping }

func (s *spy) Close() error {
	s.closed = true
	return s.Backend.Close()
}

// openedBy returns c with s for spy://, and the URL that the opener gets.
func (s *spy) openedBy(c config.Config) (config.Config, *url.URL) {
	var got url.URL
	s.Backend = memlock.New()
	return c.WithOpener("spy", func(_ context.Context, u *url.URL) (distributed.Backend, error) {
		got = *u
		return s, nil
	}), &got
}

func TestSettingsReachTheLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := at("spy://host/path")
		c.LeaseTTL, c.Wait, c.LockTimeMax = 3*time.Second, time.Second, time.Minute
		c.SingleWaitThreshold = config.Thresholds{Default: 0, Names: map[string]int{"cart": 1}}
		var backend spy
		c, opened := backend.openedBy(c)
		locker, err := c.Open(t.Context())
		require.NoError(t, err)
		require.Equal(t, "spy://host/path", opened.String())

		start := time.Now()
		err = locker.Do(t.Context(), "product", "1", func(ctx context.Context) error {
			require.ErrorIs(t, locker.Do(t.Context(), "product", "1", nothing), wllock.ErrQueueFull)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, wllock.ErrLockTimeMax)
		require.Equal(t, time.Minute, time.Since(start))
		require.Equal(t, c.LeaseTTL, backend.asked.TTL)

		start = time.Now()
		require.NoError(t, locker.Do(t.Context(), "cart", "1", func(context.Context) error {
			require.ErrorIs(t, locker.Do(t.Context(), "cart", "1", nothing), wllock.ErrWaitTimeout)
			return nil
		}))
		require.Equal(t, c.Wait, time.Since(start))

		require.NoError(t, locker.Close(t.Context()))
		require.True(t, backend.closed, "the Locker owns its backend")
	})
}

// How many callers are served in a row while another instance waits.
func TestTheBudgetReachesTheLocker(t *testing.T) {
	for name, test := range map[string]struct {
		set  func(c *config.Config)
		want int
	}{
		"MaxHandoffs": {func(c *config.Config) { c.MaxHandoffs = 2 }, 2},
		"MaxTenure":   {func(c *config.Config) { c.MaxTenure = 25 * time.Millisecond }, 3}, // who begin at 0, 10 and 20 ms
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := at("spy://host")
				test.set(&c)
				var backend spy
				c, _ = backend.openedBy(c)
				locker, err := c.Open(t.Context())
				require.NoError(t, err)
				other, err := wllock.New(c.SystemName, backend.Backend)
				require.NoError(t, err)

				lock, err := locker.Acquire(t.Context(), "product", "1")
				require.NoError(t, err)
				served, before := 0, 0
				var callers sync.WaitGroup
				for range 10 {
					callers.Go(func() {
						assert.NoError(t, locker.Do(t.Context(), "product", "1", func(context.Context) error {
							time.Sleep(10 * time.Millisecond)
							served++
							return nil
						}))
					})
				}
				callers.Go(func() {
					assert.NoError(t, other.Do(t.Context(), "product", "1", func(context.Context) error {
						before = served
						return nil
					}))
				})
				synctest.Wait()
				require.NoError(t, lock.Release(t.Context()))
				callers.Wait()
				require.Equal(t, test.want, before)
				require.NoError(t, other.Close(t.Context()))
				require.NoError(t, locker.Close(t.Context()))
			})
		})
	}
}

func TestOptionsOverrideSettings(t *testing.T) {
	c := at("spy://")
	c.SingleWaitThreshold.Default = 5
	var backend spy
	c, _ = backend.openedBy(c)
	locker, err := c.Open(t.Context(), wllock.WithThreshold(0), wllock.WithLeaseTTL(7*time.Second))
	require.NoError(t, err)
	require.NoError(t, locker.Do(t.Context(), "product", "1", func(context.Context) error {
		require.ErrorIs(t, locker.Do(t.Context(), "product", "1", nothing), wllock.ErrQueueFull)
		return nil
	}))
	require.Equal(t, 7*time.Second, backend.asked.TTL)
	require.NoError(t, locker.Close(t.Context()))
}

func TestOpenRefuses(t *testing.T) {
	c := valid()
	c.LeaseTTL = 0
	_, err := c.Open(t.Context())
	require.ErrorContains(t, err, "WLLOCK_LEASE_TTL 0s is less than 50ms")

	for _, backend := range []string{"zookeeper://zk", "consul://a,b,c"} {
		_, err = at(backend).Open(t.Context())
		require.ErrorContains(t, err, "is not a backend that this program can open")
		require.ErrorContains(t, err, "memory://")
		require.ErrorContains(t, err, "Config.WithOpener")
		require.IsType(t, new(config.Error), err)
	}

	_, err = at("memory://host").Open(t.Context())
	require.ErrorContains(t, err, "memory:// takes no host")
}

// All that is wrong is in one error, also when the scheme is among it.
func TestOpenReportsASchemeWithTheOtherProblems(t *testing.T) {
	c := valid()
	c.Backend, c.LeaseTTL, c.MaxHandoffs = config.NewURL("postgres://host/shop"), 0, -1
	_, err := c.Open(t.Context())
	require.ErrorContains(t, err, "3 wrong settings")
	require.ErrorContains(t, err, `"postgres" is not a backend that this program can open: Config.WithOpener adds it, with package distributed/sqllock/postgres`)
}

// Both names of a scheme are opened, whichever the program has given.
func TestPostgresHasTwoNames(t *testing.T) {
	for _, backend := range []string{"postgres://host/shop", "postgresql://host/shop"} {
		c := at(backend)
		opened := errors.New("opened")
		_, err := c.WithOpener("postgres", func(_ context.Context, u *url.URL) (distributed.Backend, error) {
			require.Equal(t, backend, u.String())
			return nil, opened
		}).Open(t.Context())
		require.ErrorIs(t, err, opened)
	}
}

func TestOpenAsksTheBackend(t *testing.T) {
	c := at("spy://:hunter2@host")
	backend := spy{ping: fmt.Errorf("dial host with hunter2: %w", distributed.ErrUnavailable)}
	c, _ = backend.openedBy(c)
	_, err := c.Open(t.Context())
	require.ErrorIs(t, err, wllock.ErrUnavailable)
	require.ErrorContains(t, err, "spy://:xxxxx@host")
	require.NotContains(t, err.Error(), "hunter2")
	require.True(t, backend.closed)
}

func TestOpenBackendDoesNotAskIt(t *testing.T) {
	c := at("spy://user:hunter2hunter2@host")
	s := spy{ping: errors.New("down")}
	c, _ = s.openedBy(c)
	backend, err := c.OpenBackend(t.Context())
	require.NoError(t, err)
	require.Same(t, &s, backend)
	require.NoError(t, backend.Close())

	for want, open := range map[string]config.Opener{
		"cannot open": func(_ context.Context, u *url.URL) (distributed.Backend, error) {
			return nil, errors.New("cannot open " + u.String())
		},
		"the opener returned no backend": opens(nil, nil),
	} {
		_, err = c.WithOpener("spy", open).OpenBackend(t.Context())
		require.ErrorContains(t, err, "opening spy://user:xxxxx@host: "+want)
		require.NotContains(t, err.Error(), "hunter2hunter2")
	}
	c.SystemName = ""
	_, err = c.OpenBackend(t.Context())
	require.ErrorContains(t, err, "WLLOCK_SYSTEM_NAME")
}

func TestOpenClosesTheBackendThatNewRefuses(t *testing.T) {
	c := at("spy://")
	var backend spy
	c, _ = backend.openedBy(c)
	_, err := c.Open(t.Context(), wllock.WithMaxHandoffs(-1))
	require.ErrorContains(t, err, "WithMaxHandoffs(-1)")
	require.True(t, backend.closed)
}

// WithOpener does not change the Config it is called on, nor copies of that.
func TestWithOpenerReturnsACopy(t *testing.T) {
	c := at("spy://host")
	first := c.WithOpener("SPY", opens(nil, errors.New("first")))
	second := first.WithOpener("spy", opens(nil, errors.New("second")))
	_, err := c.Open(t.Context())
	require.ErrorContains(t, err, "is not a backend")
	_, err = first.Open(t.Context())
	require.ErrorContains(t, err, "first")
	_, err = second.Open(t.Context())
	require.ErrorContains(t, err, "second")
}

func TestMissingOpenerOrBackend(t *testing.T) {
	require.PanicsWithValue(t, `config: WithOpener("spy", nil): want a function`, func() { valid().WithOpener("spy", nil) })
	_, err := at("spy://host").WithOpener("spy", opens(nil, nil)).Open(t.Context())
	require.ErrorContains(t, err, "opening spy://host: the opener returned no backend")
}

// The error of an opener may spell the password in any form; our error must not contain it.
func TestErrorsOfOpenersAreScrubbed(t *testing.T) {
	const secret = `p"ä s/%w`
	for _, spell := range []func(*url.URL) string{
		func(u *url.URL) string { return u.String() },
		func(u *url.URL) string { return fmt.Sprintf("%q", u.String()) },
		func(u *url.URL) string { p, _ := u.User.Password(); return p },
		func(u *url.URL) string { p, _ := u.User.Password(); return fmt.Sprintf("%q %+q", p, p) },
		func(u *url.URL) string {
			p, _ := u.User.Password()
			return url.QueryEscape(p) + " " + url.PathEscape(p)
		},
		func(u *url.URL) string { return u.RawQuery + " " + u.Query().Get("other") },
	} {
		c := at("broken://user:" + url.PathEscape(secret) + "@host?other=" + url.QueryEscape("o"+secret))
		var inner error
		_, err := c.WithOpener("broken", func(_ context.Context, u *url.URL) (distributed.Backend, error) {
			inner = fmt.Errorf("cannot read %s: %w", spell(u), io.ErrUnexpectedEOF)
			return nil, inner
		}).Open(t.Context())
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.ErrorContains(t, err, "cannot read")
		for e := err; e != nil; e = errors.Unwrap(e) { // no layer shows it
			for _, form := range []string{secret, url.PathEscape(secret), url.QueryEscape(secret), `p\"`} {
				require.NotContains(t, e.Error(), form, inner)
				require.NotContains(t, fmt.Sprintf("%#v", e), form, inner)
			}
		}
	}
}

// A short secret is in many texts by chance. Replaced there it would be told by what is missing.
func TestAShortSecretIsNotToldByWhatIsMissing(t *testing.T) {
	for _, password := range []string{"e", "is", "the", "%"} {
		c := at("broken://user:" + url.PathEscape(password) + "@host")
		_, err := c.WithOpener("broken", opens(nil, fmt.Errorf("the host is 100%% away: %w", syscall.ECONNREFUSED))).Open(t.Context())
		require.EqualError(t, err, "wllock: opening broken://user:xxxxx@host: connection refused (the rest is not shown: it may contain a secret)")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
}

func TestCredentialsGoIntoTheURL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("\ufeffp/w\r\n"), 0o600))
	for _, test := range []struct {
		name, url, user, password, file, want string
	}{
		{name: "none", url: "redis://h", want: "redis://h"},
		{name: "in the URL", url: "redis://u:p@h", want: "redis://u:p@h"},
		{name: "file", url: "redis://h", file: file, want: "redis://:p%2Fw@h"},
		{name: "user and file", url: "redis://h/1?a=b", user: "u@", file: file, want: "redis://u%40:p%2Fw@h/1?a=b"},
		{name: "user of the URL and file", url: "redis://u@h", file: file, want: "redis://u:p%2Fw@h"},
		{name: "variable", url: "redis+sentinel://a:1,b:2/m", password: "pw", want: "redis+sentinel://:pw@a:1,b:2/m"},
		{name: "variable with what a shell or a secret store adds", url: "redis://h", password: "\ufeffp/w\r\n", want: "redis://:p%2Fw@h"},
		{name: "variable of white space is not set", url: "redis://h", password: "\n", file: file, want: "redis://:p%2Fw@h"},
		{name: "user alone", url: "unix:///run/redis.sock", user: "u", want: "unix://u@/run/redis.sock"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := at(test.url)
			c.RedisUsername, c.RedisPassword, c.RedisPasswordFile = test.user, config.NewSecret(test.password), test.file
			var got string
			done := errors.New("seen")
			open := func(_ context.Context, u *url.URL) (distributed.Backend, error) {
				got = u.String()
				return nil, done
			}
			for _, scheme := range []string{"redis", "redis+sentinel", "unix"} {
				c = c.WithOpener(scheme, open)
			}
			_, err := c.Open(t.Context())
			require.ErrorIs(t, err, done)
			require.Equal(t, test.want, got)
		})
	}
}

func TestCredentialsThatDoNotGoTogether(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("hunter2"), 0o600))
	require.NoError(t, os.WriteFile(file+".empty", nil, 0o600))
	require.NoError(t, syscall.Mkfifo(file+".pipe", 0o600))
	require.NoError(t, os.WriteFile(file+".lines", []byte("hunter2\nlocks\n"), 0o600))
	for _, test := range []struct{ url, user, password, file, want string }{
		{"redis://u@h", "v", "", "", "WLLOCK_REDIS_USERNAME is set, but WLLOCK_BACKEND has a user name too"},
		{"redis://:p@h", "", "hunter2", "", "WLLOCK_REDIS_PASSWORD is set, but WLLOCK_BACKEND has a password too"},
		{"redis://:p@h", "", "", file, "WLLOCK_REDIS_PASSWORD_FILE is set, but WLLOCK_BACKEND has a password too"},
		{"redis://h", "", "hunter2", file, "WLLOCK_REDIS_PASSWORD_FILE is set, but WLLOCK_REDIS_PASSWORD is set"},
		{"redis://h", "", "", "hunter2", "WLLOCK_REDIS_PASSWORD_FILE names a file that cannot be read: no such file"},
		{"redis://h", "", "", filepath.Dir(file), "names a file that cannot be read: is a directory"},
		{"redis://h", "", "", file + ".empty", "names an empty file"},
		{"redis://h", "", "", file + ".pipe", "names a file that is a pipe or a device, which cannot be read again"},
		{"redis://h", "", "", file + ".lines", "WLLOCK_REDIS_PASSWORD_FILE names a file that is not one line of UTF-8"},
		{"redis://h", "", "hunter2\nlocks", "", "WLLOCK_REDIS_PASSWORD is not one line of UTF-8"},
		{"memory://", "v", "", "", "WLLOCK_REDIS_USERNAME is set, but WLLOCK_BACKEND is not Redis"},
	} {
		c := at(test.url)
		c.RedisUsername, c.RedisPassword, c.RedisPasswordFile = test.user, config.NewSecret(test.password), test.file
		err := c.Validate()
		require.ErrorContains(t, err, test.want)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

// WLLOCK_OUTAGE=local reaches the Locker: after the longest lease TTL without its backend it admits callers.
func TestOpenLocalOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		c := valid()
		c.Backend, c.Outage, c.LeaseTTL, c.LongestTTL = config.NewURL("spy://host"), config.LocalOnly, time.Second, 2*time.Second
		locker, err := c.WithOpener("spy", opens(b, nil)).Open(t.Context())
		require.NoError(t, err)
		b.Partition(true)
		begin := time.Now()
		require.NoError(t, locker.Do(t.Context(), "product", "1", func(ctx context.Context) error {
			held, _ := wllock.HeldFrom(ctx)
			require.True(t, held.Degraded())
			return nil
		}))
		require.Equal(t, c.LongestTTL, time.Since(begin))
		require.NoError(t, locker.Close(t.Context()))
	})
}

// Only options that may be secrets are removed from an error.
func TestErrorOfOpenIsReadable(t *testing.T) {
	for _, options := range []string{"", "?db=0", "?dial_timeout=1s&pool_size=10", "?token=127&x=127.0.0.1:1"} {
		c := at("spy://127.0.0.1:1" + options)
		_, err := c.WithOpener("spy", opens(nil, errors.New("dial tcp 127.0.0.1:1: connection refused, 10 tries in 1s"))).Open(t.Context())
		if strings.Contains(options, "token") {
			require.NotContains(t, err.Error(), "127.0.0.1:1:")
			continue
		}
		require.ErrorContains(t, err, "dial tcp 127.0.0.1:1: connection refused, 10 tries in 1s")
	}
}

// A program that is stopped while it waits for its backend says why it waited.
func TestOpenInterrupted(t *testing.T) {
	for _, backend := range []string{"redis://127.0.0.1:1", "redis+cluster://127.0.0.1:1", "redis+sentinel://127.0.0.1:1/main",
		"redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"} {
		c := at(backend)
		var err error
		for after := 50 * time.Millisecond; after < time.Minute; after *= 2 { // a busy machine dials later
			ctx, cancel := context.WithCancel(t.Context())
			stop := time.AfterFunc(after, cancel)
			_, err = c.Open(ctx)
			stop.Stop()
			cancel()
			require.ErrorIs(t, err, context.Canceled)
			if strings.Contains(err.Error(), "connection refused") {
				break
			}
		}
		require.ErrorIs(t, err, wllock.ErrUnavailable)
		require.ErrorContains(t, err, "connection refused")
	}
}

// The error says that the backend did not respond, and nothing about held locks. A dial may be refused just before the time is up.
func TestOpenWithoutResponse(t *testing.T) {
	c := at("redis://127.0.0.1:1")
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := c.Open(ctx)
		cancel()
		require.ErrorIs(t, err, wllock.ErrUnavailable)
		if !errors.Is(err, context.DeadlineExceeded) {
			require.ErrorContains(t, err, "connection refused")
		}
		require.NotContains(t, err.Error(), "held")
	}
}

// nothing is a function to guard.
func nothing(context.Context) error { return nil }

// Open keeps to its context, also while it closes what it has opened.
func TestOpenDoesNotWaitForASilentBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := at("stuck://").WithOpener("stuck", opens(stuck{memlock.New()}, nil))
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := c.Open(ctx)
		require.ErrorIs(t, err, wllock.ErrUnavailable)
		require.Less(t, time.Since(began), time.Second)
		time.Sleep(5 * time.Second) // it goes on closing
	})
}

// stuck is a backend that is silent, and closes after a while.
type stuck struct{ distributed.Backend }

func (stuck) Ping(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", distributed.ErrUnavailable, ctx.Err())
}

func (s stuck) Close() error {
	time.Sleep(4 * time.Second)
	return s.Backend.Close()
}

package redislock

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
)

func TestFullMemory(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--maxmemory-policy", "noeviction")
	b := open(t, s.Addr)
	holder := newUser(t, b)
	l := holder.lease(key(t))
	p := newUser(t, b).place(key(t))
	s.Do("CONFIG", "SET", "maxmemory", "1") // all is used up
	inTime(t, "said", 0, func() {
		err := newUser(t, b).fails(t.Context(), key(t)+"new")
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		require.ErrorContains(t, err, "OOM")
	})
	until := l.Until()
	require.Eventually(t, func() bool { return l.Until().After(until) }, patience, time.Millisecond, "renewals work")
	time.Sleep(testTTL)
	require.Empty(t, p.Granted())
	require.NoError(t, l.Refill(t.Context()))
	passOn(t, l, p) // the place was kept, and the hand-over works
	require.Nil(t, s.Do("GET", key(t)+"new"))
}

func TestEvictingPolicyIsWarnedOf(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	var out bytes.Buffer
	b := open(t, s.Addr, WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
	require.NoError(t, b.Ping(t.Context()))
	require.Contains(t, out.String(), "allkeys-lru")
	require.Equal(t, 1, strings.Count(out.String(), "level=WARN"))
	require.NoError(t, b.Ping(t.Context()))
	require.Equal(t, 1, strings.Count(out.String(), "level=WARN"), "once is enough")
}

// command is one as an operator types it.
func command(text string) (args []any) {
	for f := range strings.FieldsSeq(text) {
		args = append(args, f)
	}
	return args
}

// openFor opens a backend for a system, as the user of the documented ACL line for it.
func openFor(t *testing.T, s *redistest.Server, system string) *Backend {
	t.Helper()
	return with(t, s.Client(s.AddUser(t, "redis.md", system)), WithSystem(system))
}

// TestTheDocumentedACLLineIsEnough: and the rules that it adds for a name that the client gives its connections, and for a database.
func TestTheDocumentedACLLineIsEnough(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := openFor(t, s, "shop")
	require.NoError(t, b.Ping(t.Context()))
	u, other := newUser(t, b), newUser(t, b)
	for _, mode := range []func(*distributed.Request){shared, exclusive} {
		l := u.lease("shop:product:1", mode)
		p := other.place("shop:product:1")
		q := newUser(t, b).place("shop:product:1", shared)
		time.Sleep(testTTL / 2) // heartbeats, claim
		require.NoError(t, l.Refill(t.Context()))
		passOn(t, l, p, q)
	}
	user := s.AddUser(t, "redis.md", "shop", "+client|setname", "+select")
	b = with(t, s.Client(user, func(o *redis.Options) { o.ClientName, o.DB = "mine", 2 }), WithSystem("shop"))
	require.NoError(t, b.Ping(t.Context()))
	release(t, newUser(t, b).lease("shop:product:1"))
	require.Empty(t, s.Do("ACL", "LOG"), "nothing was refused")
}

// TestTheDocumentedACLLineAllowsNothingElse: nothing that reaches the server, or the users of others, by which they would be stopped.
func TestTheDocumentedACLLineAllowsNothingElse(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	user := s.Client(s.AddUser(t, "redis.md", "shop"))
	for _, text := range []string{
		"CLIENT PAUSE 5000 ALL", "CLIENT KILL USER bank", "CLIENT LIST", "CLIENT NO-EVICT on", "CLIENT TRACKING ON BCAST", "CLIENT UNBLOCK 1", "CLIENT REPLY OFF",
		"KEYS *", "SCAN 0", "FLUSHALL", "CONFIG GET *", "ACL LIST", "MONITOR", "SHUTDOWN NOSAVE", "SCRIPT FLUSH", "SCRIPT KILL", "SWAPDB 0 1", "SELECT 1",
		"PUBSUB CHANNELS", "PSUBSCRIBE *", "DEBUG SLEEP 1", "FUNCTION LIST", "CLUSTER RESET", "REPLICAOF NO ONE",
	} {
		require.ErrorContains(t, user.Do(t.Context(), command(text)...).Err(), "NOPERM", text)
	}
	for _, rule := range redistest.UserLine(t, "redis.md", "shop")[3:] {
		require.NotContains(t, rule, "@", "a category has more than is needed")
	}
}

// TestTheCommandsOfTheRunbookRun: what docs/operations.md has an operator ask Redis shows what it says, of a lock that is held.
func TestTheCommandsOfTheRunbookRun(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	s := redistest.Start(t)
	b := with(t, s.Client(), WithSystem("shop"))
	l := newUser(t, b).lease("shop:product:1000")
	_, value, _ := strings.Cut(string(page), "# wllock:x:")
	value, _, _ = strings.Cut("wllock:x:"+value, "\n")
	shows := map[string]string{
		"PING": "^PONG$", "INFO": "(?s)uptime_in_seconds.*evicted_keys", "INFO persistence": "loading", "SLOWLOG GET 10": "",
		"GET shop:product:1000": "^" + regexp.MustCompile("<[^>]+>").ReplaceAllString(value, "[^:]+") + "$",
	}
	found := map[string]bool{}
	for _, m := range regexp.MustCompile("redis-cli (?:-h redis )?([A-Z][^;|#`\n]*)").FindAllStringSubmatch(string(page), -1) {
		text := strings.TrimSpace(m[1])
		require.Contains(t, shows, text)
		require.Regexp(t, shows[text], fmt.Sprint(s.Do(command(text)...)), text)
		found[text] = true
	}
	require.Len(t, found, len(shows))
	release(t, l)
}

func TestMissingACLRuleIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ change, says string }{
		"a command":          {"-zrank", "+zrank"},
		"publish":            {"-publish", "+publish"},
		"the channel":        {"resetchannels", "&wllock:shop:*"},
		"helper keys":        {"resetkeys ~shop:*", "~wllock:shop:*"},
		"running scripts":    {"-evalsha", "evalsha"},
		"subscribing at all": {"-subscribe", "subscribe"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			b := openFor(t, s, "shop")
			s.Do(command("ACL SETUSER shop " + c.change)...)
			err := b.Ping(t.Context())
			require.ErrorIs(t, err, distributed.ErrUnavailable)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, newUser(t, b).fails(t.Context(), "shop:product:1"), c.says, "at the first use as well")
		})
	}
}

// TestCommandsThatAreRenamedAway: locks work as without the right to INFO, CLIENT, SCRIPT and HELLO; other commands are named.
func TestCommandsThatAreRenamedAway(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--rename-command", "INFO", "", "--rename-command", "CLIENT", "", "--rename-command", "SCRIPT", "",
		"--rename-command", "HELLO", "", "--rename-command", "CONFIG", "")
	b := open(t, s.Addr)
	require.NoError(t, b.Ping(t.Context()))
	l := newUser(t, b).lease("shop:product:1")
	passOn(t, l, newUser(t, b).place("shop:product:1"))

	for _, command := range []string{"PING", "SUBSCRIBE", "EVALSHA", "TIME", "ZRANK"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			err := open(t, redistest.Start(t, "--rename-command", command, "").Addr, WithSystem("shop")).Ping(t.Context())
			require.ErrorIs(t, err, distributed.ErrRefused)
			require.Regexp(t, "ERR unknown command '"+strings.ToLower(command)+"'|the server lacks the commands "+command+", as after rename-command", err)
		})
	}
}

func TestKeyOutsideTheACLIsNamed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := openFor(t, s, "shop")
	for want, rule := range map[string]string{ // the channel is looked at once for each system
		"the user lacks the ACL rule ~wllock:mall:*": "", "the user lacks the ACL rules &wllock:plaza:*": "~wllock:plaza:*",
		"~pattern for the lock's key or ~wllock:arcade:*": "~wllock:arcade:* &wllock:arcade:*",
	} {
		s.Do(command("ACL SETUSER shop " + rule)...)
		_, system, _ := strings.Cut(want, "wllock:")
		err := newUser(t, b).fails(t.Context(), strings.TrimSuffix(system, "*")+"product:1")
		require.ErrorIs(t, err, distributed.ErrUnavailable)
		require.ErrorContains(t, err, want)
		t.Log(err)
	}
}

// A user with the rule for the helper keys only is refused.
func TestSystemOutsideTheACLIsNamed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(s.AddUser(t, "redis.md", "shop"))
	for system, want := range map[string]string{"shop": "", "mall": "the user lacks the ACL rule ~mall:*: NOPERM"} {
		b := with(t, client, WithSystem("shop"), WithSystem(system))
		err := b.Ping(t.Context())
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, distributed.ErrUnavailable)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, newUser(t, b).fails(t.Context(), "shop:product:1"), want, "at the first use as well")
		}
	}
	b := with(t, client)
	ask := func(system string) error {
		l, err := wllock.New(system, b)
		require.NoError(t, err)
		defer l.Close(t.Context())
		return l.Ping(t.Context())
	}
	require.NoError(t, ask("shop"))
	err := ask("mall")
	require.ErrorIs(t, err, wllock.ErrUnavailable, "a Locker asks for its own system")
	require.ErrorContains(t, err, "the user lacks the ACL rule ~wllock:mall:*")
	require.Zero(t, s.Do("DBSIZE"), "nothing is left behind")
}

func TestPublishRevokedWhileRunning(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := openFor(t, s, "shop")
	u, other := newUser(t, b), newUser(t, b)
	var l distributed.Lease = u.lease("shop:product:1")
	s.Do("ACL", "SETUSER", "shop", "-publish")
	for range 2 {
		p := other.place("shop:product:1")
		inTime(t, "found by a heartbeat", distributed.HeartbeatInterval(testTTL), func() {
			release(t, l)
			l = granted(t, p)
		})
		u, other = other, u
	}
	release(t, l)
}

func TestTooOldServerIsNamed(t *testing.T) {
	t.Parallel()
	_, b := openNew(t)
	swapTransport(b, func(tr conn.Transport) conn.Transport { return aged{tr} })
	err := b.Ping(t.Context())
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "too old: version 6.2.7")
}

// aged is a server that says it is old.
type aged struct{ conn.Transport }

func (a aged) About(ctx context.Context, tag string) (conn.Info, error) {
	info, err := a.Transport.About(ctx, tag)
	info.Version = "6.2.7"
	return info, err
}

func TestNothingPrintsSecrets(t *testing.T) {
	for _, url := range []string{
		"redis://user:secret@localhost:6379/1", "rediss://user:secret@localhost", "unix://user:secret@/tmp/s?db=1",
		"redis+unix://user:secret@/tmp/s", "redis+sentinel://user:secret@h1,h2:1/main/2", "redis+cluster://user:secret@h1,h2:1",
		"rediss+cluster://user:secret@[::1],h2:1", "redis://us%zz:secret@localhost", "redis://user:secret@local host/1",
		"redis+cluster://user:sec%zzret-secret@h1", "redis://user:secret@localhost/x/y", "redis://user:secret@localhost:port",
		"redis+sentinel://user:secret@h1", "redis+cluster://user:secret@h1/1", "redis+cluster://user:secret@", "other://user:secret@h",
		"redis+sentinel://user:secret@h1/main/x", "user:secret@h", "user:secret@h://",
	} {
		b, err := Open(url)
		if err != nil {
			require.NotContains(t, err.Error(), "secret", url)
			continue
		}
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			require.NotContains(t, fmt.Sprintf(format, b), "secret", "%s of %s", format, url)
		}
		require.NoError(t, b.Close())
	}
}

func TestOpenOverAUnixSocket(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, scheme := range []string{"unix", "redis+unix"} {
		release(t, newUser(t, byURL(t, scheme+"://"+s.Socket+"?db=2")).lease(key(t)))
	}
}

func TestWrongClientsAndOptionsAreRefused(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "localhost:1"})
	defer client.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "localhost:1"}, HeartbeatFrequency: time.Hour})
	defer ring.Close()
	cluster := redis.NewFailoverClusterClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{"localhost:1"}})
	defer cluster.Close()
	for _, c := range []struct {
		client redis.UniversalClient
		opts   []Option
		says   string
	}{
		{ring, nil, "Ring"}, // it may change servers unseen, as the next one
		{cluster, nil, "FailoverClient"},
		{nil, nil, "no client"},
		{client, []Option{nil}, "an option is nil"},
		{client, []Option{WithLogger(nil)}, "WithLogger(nil)"}, // the first warning would end the program, on a goroutine of its own
		{client, []Option{WithSystem("")}, "WithSystem"},
		{client, []Option{WithSystem("wllock")}, `WithSystem("wllock")`},
		{client, []Option{WithKey(nil)}, "WithKey(nil)"},
		{client, []Option{WithInstance("web 1")}, "WithInstance"},
	} {
		_, err := New(c.client, c.opts...)
		require.ErrorContains(t, err, c.says)
		if c.client == client {
			_, err = Open("redis://localhost:1", c.opts...)
			require.ErrorContains(t, err, c.says)
		}
	}
}

// No part of a key leaves the process, whatever Redis and the client say.
func TestNoKeyLeavesWithRedaction(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := redistest.NewProxy(t, s.Addr)
	user := s.AddUser(t, "redis.md", "shop")
	rights := func(rules ...any) {
		s.Do(append([]any{"ACL", "SETUSER", "shop"}, rules...)...)
	}
	admin := s.Client()
	testlocker.Secrecy{
		System: "shop", TTL: 3 * time.Second,
		Open: func(t *testing.T, log *slog.Logger) distributed.Backend {
			return with(t, s.Client(user, func(o *redis.Options) { o.Addr = proxy.Addr }), WithSystem("shop"), WithLogger(log))
		},
		Hinders: map[string]func(*testing.T) func(){
			"no right to scripts": func(*testing.T) func() { rights("-evalsha"); return func() { rights("+evalsha") } },
			"no right to keys": func(*testing.T) func() {
				rights("resetkeys", "~other:*")
				return func() { rights("~shop:*", "~wllock:shop:*") }
			},
			"a cut": func(*testing.T) func() {
				proxy.Redirect("127.0.0.1:1")
				proxy.Cut()
				return func() { proxy.Redirect(s.Addr) }
			},
			"a full server": func(*testing.T) func() {
				s.Do("CONFIG", "SET", "maxmemory", "1")
				return func() { s.Do("CONFIG", "SET", "maxmemory", "0") }
			},
			"other data under the keys": func(t *testing.T) func() {
				ctx := t.Context()
				keys := admin.Keys(ctx, "shop:*").Val()
				for _, key := range keys {
					admin.Del(ctx, key)
					admin.LPush(ctx, key, "theirs")
				}
				return func() { admin.Del(ctx, keys...) }
			},
		},
	}.Run(t)
}

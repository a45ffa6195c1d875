package redislimit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/middleware/ratelimit"
	"github.com/wllock/wllock/middleware/ratelimit/redislimit"
)

// shop is a limiter with the rights of the documented line, its server, and what it reports.
type shop struct {
	*redislimit.Limiter
	server *redistest.Server
	reports
}

func openShop(t testing.TB) *shop {
	t.Helper()
	s := &shop{server: redistest.Start(t)}
	s.Limiter = open(t, s.server.Client(s.server.AddUser(t, "middleware.md", "shop")), s.options()...)
	return s
}

// reports are the lines and counts of a limiter.
type reports struct {
	log bytes.Buffer

	mu     sync.Mutex // guards counts
	counts map[string]int64
}

func (r *reports) options() []redislimit.Option {
	r.counts = map[string]int64{}
	return []redislimit.Option{
		redislimit.WithPrefix("wllock:shop:limit:"), redislimit.WithMeterProvider(meters{r: r}),
		redislimit.WithLogger(slog.New(slog.NewTextHandler(&r.log, nil))),
	}
}

func (r *reports) lines() []string {
	return strings.Split(strings.TrimSuffix(r.log.String(), "\n"), "\n")
}

// count returns how many requests were counted with the outcome.
func (r *reports) count(outcome string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[outcome]
}

// meters has one meter with one counter, which counts by outcome.
type meters struct {
	noop.MeterProvider
	r *reports
}

func (m meters) Meter(string, ...metric.MeterOption) metric.Meter { return meter{r: m.r} }

type meter struct {
	noop.Meter
	r *reports
}

func (m meter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	if name != "wllock.limit.failures" {
		return nil, errors.New(name)
	}
	return counter{r: m.r}, nil
}

type counter struct {
	noop.Int64Counter
	r *reports
}

func (c counter) Add(_ context.Context, n int64, opts ...metric.AddOption) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	attributes := metric.NewAddConfig(opts).Attributes()
	outcome, _ := attributes.Value("wllock.outcome")
	c.r.counts[outcome.AsString()] += n
}

// A limiter that Redis refuses admits nobody, says why once, and counts each request: without rights nothing would be limited.
func TestRefusedLimiterRefuses(t *testing.T) {
	s := openShop(t)
	served := 0
	limits := ratelimit.New(s, []ratelimit.Rule{{Policy: five, Of: func(*http.Request) (string, error) { return "a", nil }}})(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	status := func() int {
		w := httptest.NewRecorder()
		limits.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		return w.Code
	}
	require.Equal(t, http.StatusOK, status())
	s.server.Do("ACL", "SETUSER", "shop-limit", "-set")
	for range 3 {
		require.Equal(t, http.StatusServiceUnavailable, status())
	}
	require.Equal(t, 1, served)
	require.Len(t, s.lines(), 1)
	for _, part := range []string{"level=ERROR", "redislimit: Redis refuses: requests are refused, too",
		"the user needs the ACL rules ~wllock:shop:limit:* +evalsha +eval +time +get +set +del"} {
		require.Contains(t, s.lines()[0], part)
	}
	require.EqualValues(t, 3, s.count("refused"))
	require.Zero(t, s.count("away"))
	s.server.Do("ACL", "SETUSER", "shop-limit", "+set")
	require.Equal(t, http.StatusOK, status())
}

// Redis without memory takes no more charges until keys expire: that is no mistake of settings, and requests are admitted.
func TestRedisWithoutMemoryIsAway(t *testing.T) {
	s := openShop(t)
	s.server.Do("CONFIG", "SET", "maxmemory", "1")
	_, err := s.Take(t.Context(), five, "a", "")
	require.ErrorContains(t, err, "OOM")
	require.NotErrorIs(t, err, ratelimit.ErrRefused)
	require.Contains(t, s.log.String(), "redislimit: Redis is away: requests are not counted")
	require.EqualValues(t, 1, s.count("away"))
}

// Requests that had no answer in time are counted.
func TestAwayIsCounted(t *testing.T) {
	s := openShop(t)
	s.server.Pause()
	defer s.server.Resume()
	_, err := s.Take(t.Context(), five, "a", "")
	require.Error(t, err)
	require.EqualValues(t, 1, s.count("away"))
}

// Ping finds each right that a charge will miss, also those that it misses only sometimes.
func TestPingFindsMissingRights(t *testing.T) {
	s := openShop(t)
	require.NoError(t, s.Ping(t.Context()))
	_, err := s.Take(t.Context(), five, "a", "r")
	require.NoError(t, err)
	for _, rule := range redistest.UserLine(t, "middleware.md", "shop")[6:] {
		right := rule.(string)[1:]
		s.server.Do("ACL", "SETUSER", "shop-limit", "-"+right)
		err := s.Ping(t.Context())
		require.ErrorIs(t, err, ratelimit.ErrRefused, right)
		require.ErrorContains(t, err, "+evalsha +eval +time +get +set +del, and in a cluster +cluster|slots: ")
		s.server.Do("ACL", "SETUSER", "shop-limit", rule)
	}
	s.server.Do("ACL", "SETUSER", "shop-limit", "resetkeys", "~other:*")
	err = s.Ping(t.Context())
	require.ErrorIs(t, err, ratelimit.ErrRefused)
	require.ErrorContains(t, err, "~wllock:shop:limit:*")
	s.server.Do("ACL", "SETUSER", "shop-limit", "~wllock:shop:limit:*")
	require.NoError(t, s.Ping(t.Context()))
	require.Empty(t, s.log.String(), "Ping returns it")
	for _, key := range s.server.Do("KEYS", "*ping*").([]any) {
		require.LessOrEqual(t, s.server.Do("PTTL", key), int64(1000))
	}
}

// Ping tells a password that is wrong or missing from a server that is away.
func TestPing(t *testing.T) {
	server := redistest.Start(t)
	server.AddUser(t, "middleware.md", "shop")
	server.Do("ACL", "SETUSER", "default", "resetpass", ">secret")
	for what, test := range map[string]struct {
		change  func(*redis.Options)
		refused bool
		want    string
	}{
		"wrong password": {func(o *redis.Options) { o.Username, o.Password = "shop-limit", "wrong" }, true, "WRONGPASS"},
		"no password":    {func(*redis.Options) {}, true, "NOAUTH"},
		"away":           {func(o *redis.Options) { o.Addr = "127.0.0.1:1" }, false, "refused"},
	} {
		for kind, connect := range map[string]func(*redis.Options) redis.UniversalClient{
			"client": func(o *redis.Options) redis.UniversalClient { return redis.NewClient(o) },
			"ring": func(o *redis.Options) redis.UniversalClient {
				return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": o.Addr}, Username: o.Username, Password: o.Password})
			},
		} {
			t.Run(what+", "+kind, func(t *testing.T) {
				o := &redis.Options{Addr: server.Addr}
				test.change(o)
				client := connect(o)
				defer client.Close()
				l := open(t, client)
				err := l.Ping(t.Context())
				require.ErrorContains(t, err, "redislimit: ping "+o.Addr+": ")
				require.ErrorContains(t, err, test.want)
				require.Equal(t, test.refused, errors.Is(err, ratelimit.ErrRefused))
				_, err = l.Take(t.Context(), five, "a", "")
				require.Equal(t, test.refused, errors.Is(err, ratelimit.ErrRefused), "%v", err)
			})
		}
	}
}

// Each node of a cluster has its own users.
func TestPingAsksEachNode(t *testing.T) {
	testscope.Long(t, "starts a cluster")
	c, client, l := openCluster(t)
	require.NoError(t, l.Ping(t.Context()))
	for _, n := range c.Nodes {
		n.Do("ACL", "SETUSER", "shop-limit", "-time")
		require.ErrorContains(t, l.Ping(t.Context()), "redislimit: ping "+n.Addr+": the limiter refuses: ")
		n.Do("ACL", "SETUSER", "shop-limit", "+time")
	}
	for _, n := range c.Nodes {
		n.Do("ACL", "SETUSER", "shop-limit", "-cluster|slots")
	}
	lacks := open(t, client, redislimit.WithPrefix("wllock:shop:limit:"))
	require.ErrorIs(t, lacks.Ping(t.Context()), ratelimit.ErrRefused)
}

// answering is a client whose commands end with an error, or are allowed.
type answering struct {
	redis.UniversalClient
	err error
}

func (a *answering) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	c := redis.NewCmd(ctx)
	c.SetVal([]any{int64(1), int64(4), "-1", "1"})
	c.SetErr(a.err)
	return c
}

func (a *answering) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return a.EvalSha(ctx, script, keys, args...)
}

// Failures are told once, until Redis has counted for ten seconds without one: some requests may fail while others do not. A refusal
// is told though Redis was away before.
func TestFailuresAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reports
		client := &answering{}
		l := redislimit.New(client, r.options()...)
		charge := func(err error) {
			client.err = err
			_, got := l.Take(t.Context(), five, "a", "")
			assert.ErrorIs(t, got, err)
		}
		for range 3 {
			charge(errors.New("reset"))
			charge(nil)
		}
		require.Len(t, r.lines(), 1)
		for range 3 {
			charge(redis.ErrClosed)
			charge(errors.New("reset"))
			time.Sleep(9 * time.Second)
			charge(nil)
		}
		require.Len(t, r.lines(), 2)
		require.Contains(t, r.lines()[0], "redislimit: Redis is away: requests are not counted")
		require.Contains(t, r.lines()[1], "redislimit: Redis refuses: requests are refused, too")
		time.Sleep(time.Second)
		charge(nil)
		charge(nil)
		require.Len(t, r.lines(), 3)
		require.Contains(t, r.lines()[2], `level=INFO msg="redislimit: Redis counts again" lasted=18s not_counted=9`)
		charge(redis.ErrClosed)
		require.Len(t, r.lines(), 4)
		require.EqualValues(t, 6, r.count("away"))
		require.EqualValues(t, 4, r.count("refused"))
	})
}

// What older servers say of the script is not what is wrong.
func TestPingNamesAnOldServer(t *testing.T) {
	for _, text := range []string{
		"ERR Error running script (call to f_1): @user_script:14: user_script:14: attempt to call field 'replicate_commands' (a nil value)",
		"ERR Error running script (call to f_1): @user_script:90: @user_script: 90: Write commands not allowed after non deterministic commands. " +
			"Call redis.replicate_commands() at the start of your script in order to switch to single commands replication mode.",
	} {
		err := redislimit.New(&answering{err: serverError(text)}).Ping(t.Context())
		require.ErrorIs(t, err, ratelimit.ErrRefused)
		require.ErrorContains(t, err, "the server is too old, needed is Redis 5: ERR")
	}
}

// serverError is an answer of a server.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

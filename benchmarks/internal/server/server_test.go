package server

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testproc"
)

func start(t *testing.T) (*Server, *redis.Client) {
	t.Helper()
	_, err := testproc.Find("redis-server")
	testproc.Need(t, err)
	s, err := Start(t.Context(), Redis)
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	t.Cleanup(func() { _ = c.Close() })
	return s, c
}

func TestScriptsCallsAreToldApart(t *testing.T) {
	s, c := start(t)
	seen, err := s.Monitor(t.Context(), func() error {
		require.NoError(t, c.Set(t.Context(), "a] \"lua", "[", 0).Err())
		return c.Eval(t.Context(), `redis.call("SET", KEYS[1], 1); return redis.call("incr", KEYS[1])`, []string{"k"}).Err()
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]int64{"set": 1, "incr": 1}, seen.Scripts)
	assert.Equal(t, int64(1), seen.Clients["set"])
	assert.Equal(t, int64(1), seen.Clients["eval"])
	assert.Zero(t, seen.Clients["incr"])

	calls, err := s.Commands(t.Context())
	require.NoError(t, err)
	assert.Equal(t, int64(2), calls["set"], "the server counts both")
	require.NoError(t, s.Flush(t.Context()))
	calls, err = s.Commands(t.Context())
	require.NoError(t, err)
	assert.Zero(t, calls["set"])
}

func TestCPUIsCounted(t *testing.T) {
	s, c := start(t)
	before, own := s.CPU(), OwnCPU()
	for until := time.Now().Add(50 * time.Millisecond); time.Now().Before(until); {
		require.NoError(t, c.Ping(t.Context()).Err())
	}
	assert.Greater(t, s.CPU(), before)
	assert.Greater(t, OwnCPU(), own)
	assert.Less(t, s.CPU(), time.Minute)
}

func TestAStoreThatCannotStartSaysWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, missing := range []Store{Redis, ZooKeeper} {
		s, err := Start(t.Context(), missing)
		require.ErrorContains(t, err, "in PATH")
		assert.Nil(t, s)
	}
}

func TestVersion(t *testing.T) {
	s, _ := start(t)
	v, err := s.Version(t.Context())
	require.NoError(t, err)
	assert.Regexp(t, `^Redis \d+\.\d+`, v)
}

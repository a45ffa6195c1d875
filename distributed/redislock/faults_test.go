package redislock

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// failSnapshot has the server fail to save a snapshot, after which it refuses writes: its folder is gone.
func failSnapshot(t *testing.T, s *redistest.Server) {
	dir := filepath.Join(t.TempDir(), "gone")
	require.NoError(t, os.Mkdir(dir, 0o700))
	s.Do("CONFIG", "SET", "dir", dir)
	require.NoError(t, os.Remove(dir))
	s.Do("BGSAVE")
	require.Eventually(t, func() bool { return info(s.Do("INFO", "persistence"), "rdb_last_bgsave_status") == "err" }, patience, time.Millisecond)
}

// info reads a field of INFO.
func info(text any, field string) string {
	for line := range strings.Lines(text.(string)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// A server that answers nobody for a while, by DEBUG SLEEP or CLIENT PAUSE: if shorter than a lease, nothing is lost; if
// longer, the loss is reported when the lease expires, and afterwards the lock is acquired again with a larger fence.
func TestServerThatStandsStill(t *testing.T) {
	testscope.Long(t, "stops a server")
	t.Parallel()
	for name, still := range map[string]func(t *testing.T, s *redistest.Server, d time.Duration){
		"DEBUG SLEEP": func(_ *testing.T, s *redistest.Server, d time.Duration) {
			c := s.Client(func(o *redis.Options) { o.ReadTimeout = patience })
			go func() { _ = c.Do(context.Background(), "DEBUG", "SLEEP", d.Seconds()).Err() }()
		},
		"CLIENT PAUSE WRITE": func(_ *testing.T, s *redistest.Server, d time.Duration) {
			s.Do("CLIENT", "PAUSE", d.Milliseconds(), "WRITE")
		},
		"CLIENT PAUSE ALL": func(_ *testing.T, s *redistest.Server, d time.Duration) {
			s.Do("CLIENT", "PAUSE", d.Milliseconds(), "ALL")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, "--enable-debug-command", "yes")
			u := newUser(t, open(t, s.Addr))
			l := u.lease(key(t))
			before := fence(t, l)
			time.Sleep(testTTL / 3) // claimed
			still(t, s, testTTL/3)
			time.Sleep(testTTL)
			require.True(t, l.Healthy(), "a third of T was waited out")

			start := time.Now()
			still(t, s, 2*testTTL)
			<-l.Lost()
			inTimeSince(t, start, "the loss", time.Since(start), testTTL)
			require.ErrorIs(t, u.fails(t.Context(), key(t)), distributed.ErrUnavailable)
			require.Eventually(t, func() bool { return u.b.Ping(t.Context()) == nil }, patience, time.Millisecond)
			after := u.get(key(t))
			inTimeSince(t, start, "the lock again", time.Since(start), 2*testTTL+distributed.ClaimWindow(testTTL))
			require.Greater(t, fence(t, after), before)
			release(t, after)
		})
	}
}

// With all of the server's connections taken, a call fails by its deadline, and few dials are made meanwhile.
func TestNoConnectionToSpare(t *testing.T) {
	t.Parallel()
	s, b := openNew(t)
	u := newUser(t, b)
	admin := s.Client(func(o *redis.Options) { o.PoolSize, o.MinIdleConns = 1, 1 })
	require.NoError(t, admin.Ping(t.Context()).Err())
	require.NoError(t, admin.ConfigSet(t.Context(), "maxclients", "1").Err())
	connections := func() int { // that were refused
		text, err := admin.Info(t.Context(), "stats").Result()
		require.NoError(t, err)
		n, err := strconv.Atoi(info(text, "rejected_connections"))
		require.NoError(t, err)
		return n
	}
	before, start := connections(), time.Now()
	err := u.fails(within(t, 500*time.Millisecond), key(t))
	inTimeSince(t, start, "maxclients", time.Since(start), 500*time.Millisecond)
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	t.Log(err) // the server hangs up after a word that is read only by chance
	made := connections() - before
	t.Logf("%d dials", made)
	require.Less(t, made, 100, "no storm of dials")
	require.NoError(t, admin.ConfigSet(t.Context(), "maxclients", "1000").Err())
	release(t, u.get(key(t)))
}

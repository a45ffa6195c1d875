package memcachelock

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/testlocker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client returns a client with connections for every member of a test.
func client(t locktest.TB, addrs ...string) *memcache.Client {
	c := memcache.New(addrs...)
	c.MaxIdleConns = 64
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func open(t locktest.TB, addrs ...string) *Backend {
	t.Helper()
	b, err := New(client(t, addrs...), WithUnfenced())
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// item is a lock as it lies on the server.
type item struct{ Owners, Queue []owner }

type owner struct {
	ID       string        `json:"id"`
	Instance string        `json:"instance"`
	TTL      time.Duration `json:"ttl"`
	Beat     int           `json:"beat"`
}

// look returns what lies under a key.
func look(t locktest.TB, c *memcache.Client, key string) (now item) {
	t.Helper()
	found, err := c.Get(itemKey(key))
	if errors.Is(err, memcache.ErrCacheMiss) {
		return now
	}
	if err == nil {
		err = json.Unmarshal(found.Value, &now)
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	return now
}

// patience is how long a test waits for what should come soon.
const patience = testlocker.Patience

var lost, release = testlocker.Lost, testlocker.Release

// ttl forgives a machine that stands still for a second.
const ttl = 2 * time.Second

func request(key, instance string) distributed.Request {
	return distributed.Request{Key: key, Instance: instance, TTL: ttl}
}

func leased(t *testing.T, b *Backend, req distributed.Request) distributed.Lease {
	t.Helper()
	l, _, err := b.Enter(t.Context(), req)
	require.NoError(t, err)
	require.NotNil(t, l)
	return l
}

func queued(t *testing.T, b *Backend, req distributed.Request) distributed.Place {
	t.Helper()
	_, p, err := b.Enter(t.Context(), req)
	require.NoError(t, err)
	require.NotNil(t, p)
	return p
}

func granted(t *testing.T, p distributed.Place) distributed.Lease {
	t.Helper()
	l := testlocker.Granted(t, p)
	require.NotNil(t, l, "the place was lost")
	return l
}

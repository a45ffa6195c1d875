package memcachelock

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

func TestHotKey(t *testing.T) {
	testscope.Long(t, "a load on one server for seconds")
	server := dbtest.Memcached(t)
	testlocker.HotKeyUnfenced(t, func() distributed.Backend { return open(t, server.Addr) })
}

func TestLockerOverAnOutage(t *testing.T) {
	testscope.Long(t, "takes a server away")
	t.Parallel()
	server := dbtest.Memcached(t)
	testlocker.Outage(t, open(t, server.Addr), server)
}

// An instance that has the lock all the time learns that another one waits, though only renewals tell it.
func TestBudgetIsKept(t *testing.T) {
	t.Parallel()
	server := dbtest.Memcached(t)
	start := func() *wllock.Locker {
		return testlocker.On(t, open(t, server.Addr), wllock.WithLeaseTTL(wllock.DefaultLeaseTTL))
	}
	holder, other := start(), start()
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	for range 2 {
		busy.Go(func() {
			for ctx.Err() == nil {
				_ = holder.Do(ctx, "product", "1", testlocker.Nothing)
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	began := time.Now()
	require.NoError(t, other.Do(t.Context(), "product", "1", testlocker.Nothing, wllock.WithWait(patience)))
	t.Logf("after %v", time.Since(began))
	stop()
	busy.Wait()
}

// An item of a version with another format is refused by name, also if this one could read the rest.
func TestOtherFormatsAreRefused(t *testing.T) {
	t.Parallel()
	addr := dbtest.Memcached(t).Addr
	b, c := open(t, addr), client(t, addr)
	for _, text := range []string{`{"format":9,"owners":[{"id":"a","instance":"b","ttl":60000000000}]}`, `{"format":9,"owners":"a"}`} {
		testlocker.RefusesOtherFormats(t, testlocker.Asker{T: t, B: b, TTL: time.Minute}, func(key string) {
			require.NoError(t, c.Set(&memcache.Item{Key: itemKey(key), Value: []byte(text)}))
		})
	}
}

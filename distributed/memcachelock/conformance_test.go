package memcachelock

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testproc"
)

func TestConformance(t *testing.T) {
	server := dbtest.Memcached(t)
	locktest.Run(t, locktest.Fixture{TTL: 2 * locktest.DefaultTTL, Open: func(t locktest.TB) locktest.Service {
		proxy := testproc.NewProxy(t, server.Addr)
		direct := client(t, server.Addr)
		return locktest.Service{
			Backend: open(t, proxy.Addr),
			Another: func() distributed.Backend { return open(t, proxy.Addr) },
			Expire: func(key string) {
				if err := expire(direct, key); err != nil {
					t.Fatalf("%v", err)
				}
			},
			Cut: proxy.Stall,
		}
	}})
}

// expire has the owners of a lock be dead. Its queue stays.
func expire(c *memcache.Client, key string) error {
	for {
		found, err := c.Get(itemKey(key))
		if errors.Is(err, memcache.ErrCacheMiss) {
			return nil
		}
		var lock struct {
			Owners []owner           `json:"owners"`
			Queue  []json.RawMessage `json:"queue"`
		}
		if err == nil {
			err = json.Unmarshal(found.Value, &lock)
		}
		if err != nil {
			return err
		}
		lock.Owners, found.Expiration = []owner{{ID: "nobody", Instance: "nobody", TTL: 1}}, 60 // whose turn is over at once
		if len(lock.Queue) == 0 {
			found.Expiration = -1
		}
		if found.Value, err = json.Marshal(lock); err != nil {
			return err
		}
		if err = c.CompareAndSwap(found); err == nil {
			return nil
		}
	}
}

package memcachelock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memcachelock"
)

// Two servers, and consent to locks that a cache may forget.
func Example() {
	ctx := context.Background()
	client := memcache.New("10.0.0.1:11211", "10.0.0.2:11211")
	client.MaxIdleConns = 64
	backend, err := memcachelock.New(client, memcachelock.WithUnfenced())
	if err != nil {
		log.Fatal(err)
	}
	locker, err := wllock.New("report", backend, wllock.WithOwnedBackend())
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)

	err = locker.Do(ctx, "render", "2026-11", func(context.Context) error {
		fmt.Println("rendering once is enough, and twice does no harm")
		return nil
	})
	fmt.Println(err)
}

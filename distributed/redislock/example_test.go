package redislock_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/redislock"
)

// A service opens its backend from a URL and looks at start whether everything is in place.
func ExampleOpen() {
	backend, err := redislock.Open("redis://redis.internal:6379",
		redislock.WithUsername("shop"), redislock.WithPasswordFile("/run/secrets/redis"),
		redislock.WithLogger(slog.Default()))
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	if err := backend.Ping(context.Background()); err != nil {
		log.Fatal(err) // names what is missing, an ACL rule for example
	}
}

// A service that has a client of its own lends the backend its settings. The lock is used directly here; an
// application leaves that to a Locker.
func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	backend, err := redislock.New(client)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()

	ctx := context.Background()
	lease, place, err := backend.Enter(ctx, distributed.Request{
		Key: "shop:product:1000", Instance: "server-1", TTL: 5 * time.Second,
	})
	switch {
	case err != nil:
		log.Fatal(err)
	case place != nil: // somebody has it; our turn comes by itself
		if lease = <-place.Granted(); lease == nil {
			log.Fatal("the place was lost: enter again")
		}
	}
	fence, _ := lease.NextFence()
	fmt.Println("write with fence", fence)
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
}

// A service that moves to wllock beside clients which lock by SET key unique NX PX and poll every 20 ms.
func ExampleWithInteropGap() {
	backend, err := redislock.Open("redis://localhost:6379", redislock.WithInteropGap(25*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
}

// A service that locks what another one calls orders:42. Its Locker has the system "shop", so the lock's name is shop:orders:42.
func ExampleWithKey() {
	backend, err := redislock.Open("redis://localhost:6379", redislock.WithKey(func(full string) string {
		return strings.TrimPrefix(full, "shop:")
	}))
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
}

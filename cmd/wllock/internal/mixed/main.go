// Command mixed uses locks for a while and prints its turns. It is compiled in this version and in an earlier one, for a test that has
// processes of both use the same locks.
//
//	mixed <url> <T> <duration>
//
// A line is a turn: "<key> <kind> <began> <ended> <fence>", times in ns since 1970. The kinds are x, s, and p for one of two permits.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/etcdlock"
	"github.com/wllock/wllock/distributed/memcachelock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/distributed/redlock"
	"github.com/wllock/wllock/distributed/sqllock/mysql"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/distributed/sqllock/sqlite"
	"github.com/wllock/wllock/distributed/zklock"
)

const (
	rounds = 5                     // of calls, before the next pause
	stay   = time.Millisecond      // of a turn
	pause  = 20 * time.Millisecond // in which others get the lock while nobody of this process waits
)

func main() {
	ttl, err := time.ParseDuration(os.Args[2])
	if err != nil {
		panic(err)
	}
	lasts, err := time.ParseDuration(os.Args[3])
	if err != nil {
		panic(err)
	}
	backend, err := open(os.Args[1])
	if err != nil {
		panic(err)
	}
	locker, err := wllock.New("mixed", backend, wllock.WithOwnedBackend(), wllock.WithLeaseTTL(ttl), wllock.WithMaxHandoffs(4))
	if err != nil {
		panic(err)
	}
	end := time.Now().Add(lasts)
	var mu sync.Mutex // guards standard output
	var all sync.WaitGroup
	for _, use := range []string{"alone x", "alone x", "readers s", "readers s", "readers x", "permits p", "permits p", "permits p", "permits x"} {
		key, kind, _ := strings.Cut(use, " ")
		if key == "permits" && strings.HasPrefix(os.Args[1], "redlock:") { // which has none
			continue
		}
		opts := map[string][]wllock.CallOption{"s": {wllock.Shared()}, "p": {wllock.Permits(2)}}[kind]
		all.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				err := locker.Do(context.Background(), "turn", key, func(ctx context.Context) error {
					held, _ := wllock.HeldFrom(ctx)
					began := time.Now()
					time.Sleep(stay)
					mu.Lock()
					defer mu.Unlock()
					fmt.Println(key, kind, began.UnixNano(), time.Now().UnixNano(), held.Fence())
					return nil
				}, append(opts, wllock.WithWait(time.Minute))...)
				if err != nil {
					fmt.Fprintln(os.Stderr, key, kind, err)
					os.Exit(1)
				}
				if n%rounds == rounds-1 {
					time.Sleep(pause)
				}
			}
		})
	}
	all.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := locker.Close(ctx); err != nil {
		panic(err)
	}
}

func open(url string) (distributed.Backend, error) {
	switch scheme, _, _ := strings.Cut(url, ":"); scheme {
	case "redis", "redis+cluster":
		return redislock.Open(url)
	case "redlock":
		return redlock.Open(url)
	case "etcd":
		return etcdlock.Open(url)
	case "zk":
		return zklock.Open(url)
	case "postgres":
		return postgres.Open(url)
	case "mysql":
		return mysql.Open(url)
	case "sqlite":
		return sqlite.Open(url)
	case "memcached":
		return memcachelock.Open(url)
	}
	return nil, fmt.Errorf("a scheme that is not known: %s", url)
}

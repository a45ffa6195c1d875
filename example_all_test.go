package wllock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// A transfer needs the locks of both accounts. Transfers in opposite directions at the same time do not wait for each
// other in a circle, because DoAll acquires their locks in one order.
func ExampleLocker_DoAll() {
	locker, _ := wllock.New("bank", memlock.New())
	defer func() { _ = locker.Close(context.Background()) }()
	balance := map[string]*int{"alice": new(100), "bob": new(100)}

	transfer := func(from, to string, amount int) error {
		accounts := []wllock.Resource{{Name: "account", Key: from}, {Name: "account", Key: to}}
		return locker.DoAll(context.Background(), accounts, func(ctx context.Context) error {
			if *balance[from] < amount {
				return errors.New("not enough money")
			}
			*balance[from] -= amount // with a store: the fence of each account is wllock.HeldKey(ctx, "account", from)
			*balance[to] += amount
			return nil
		})
	}
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() { _ = transfer("alice", "bob", 3) })
		all.Go(func() { _ = transfer("bob", "alice", 3) })
	}
	all.Wait()
	fmt.Println(*balance["alice"]+*balance["bob"], transfer("alice", "bob", 1000))
	// Output: 200 not enough money
}

// A report reads the catalog, which many may read at once, and writes to the account of its customer.
func ExampleLocker_GuardAll() {
	locker, _ := wllock.New("shop", memlock.New())
	defer func() { _ = locker.Close(context.Background()) }()

	charge := locker.GuardAll([]wllock.Resource{
		{Name: "catalog", Key: "2026", Shared: true},
		{Name: "account", Key: "7"},
	}, func(ctx context.Context) error {
		for _, name := range []string{"account", "catalog"} {
			held, ok := wllock.HeldKey(ctx, name, map[string]string{"account": "7", "catalog": "2026"}[name])
			fmt.Println(held.Key(), ok)
		}
		return nil
	})
	fmt.Println(charge(context.Background()))
	// Output:
	// shop:account:7 true
	// shop:catalog:2026 true
	// <nil>
}

package zklock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/zklock"
)

// An ensemble of three, below the node /locks, as the user shop with a password from a file.
func Example() {
	ctx := context.Background()
	backend, err := zklock.Open("zk://zk1,zk2,zk3/locks", zklock.WithAuthFile("shop", "/run/secrets/zookeeper"))
	if err != nil {
		log.Fatal(err)
	}
	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)

	err = locker.Do(ctx, "product", "1000", func(ctx context.Context) error {
		held, _ := wllock.HeldFrom(ctx)
		fmt.Println("holding", held.Key())
		return nil
	})
	fmt.Println(err)
}

func ExampleKey() {
	key, err := zklock.Key("shop:path:a%2Fb")
	fmt.Println(key, err)
	// Output: shop:path:a/b <nil>
}

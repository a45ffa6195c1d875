package etcdlock_test

import (
	"context"
	"fmt"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/etcdlock"
)

// A cluster of three, below the prefix /locks, over TLS, as the user shop with a password from a file.
func Example() {
	ctx := context.Background()
	backend, err := etcdlock.Open("etcds://shop@h1,h2,h3/locks?password-file=/run/secrets/etcd&tls_ca=/etc/etcd/ca.pem")
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

// With a client that is yours, and stays open.
func ExampleNew() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://h1:2379", "http://h2:2379", "http://h3:2379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	backend, err := etcdlock.New(client, etcdlock.WithPrefix("/locks"))
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	fmt.Println(backend)
	// Output: etcdlock(/locks)
}

func ExampleKey() {
	key, err := etcdlock.Key("/wllock", "/wllock/shop:path:a%2Fb/x/6vp7c33g-HHXNABCDEFGHIJKL")
	fmt.Println(key, err)
	// Output: shop:path:a/b <nil>
}

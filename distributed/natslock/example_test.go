package natslock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/natslock"
)

var errSoldOut = errors.New("sold out")

// shop sells what a bucket of NATS says is there.
type shop struct {
	locker *wllock.Locker
	stock  jetstream.KeyValue
}

// buy takes one piece. A holder that was paused beyond its lease is refused by the revision.
func (s shop) buy(ctx context.Context, product string) error {
	return s.locker.Do(ctx, "product", product, func(ctx context.Context) error {
		left, err := s.stock.Get(ctx, product)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(left.Value()))
		switch {
		case err != nil:
			return err
		case n == 0:
			return errSoldOut
		}
		_, err = s.stock.Update(ctx, product, []byte(strconv.Itoa(n-1)), left.Revision())
		return err
	})
}

// A shop whose stock and locks are in NATS.
func Example_shop() {
	ctx := context.Background()
	url, stop := serve()
	defer stop()
	conn, err := nats.Connect(url, nats.ReconnectBufSize(-1))
	check(err)
	defer conn.Close()
	backend, err := natslock.New(conn)
	check(err)
	locker, err := wllock.New("shop", backend, wllock.WithOwnedBackend())
	check(err)
	defer locker.Close(ctx)
	js, err := jetstream.New(conn)
	check(err)
	stock, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "stock"})
	check(err)
	_, err = stock.Put(ctx, "lamp", []byte("3"))
	check(err)

	var sold, refused atomic.Int32
	var buyers sync.WaitGroup
	for range 10 {
		buyers.Go(func() {
			switch err := (shop{locker, stock}).buy(ctx, "lamp"); {
			case errors.Is(err, errSoldOut):
				refused.Add(1)
			default:
				check(err)
				sold.Add(1)
			}
		})
	}
	buyers.Wait()
	fmt.Println(sold.Load(), "sold,", refused.Load(), "told that there is none")
	// Output: 3 sold, 7 told that there is none
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// serve has a server in this process, at the URL.
func serve() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "shop")
	check(err)
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	check(err)
	s.Start()
	return s.ClientURL(), func() {
		s.Shutdown()
		s.WaitForShutdown()
		check(os.RemoveAll(dir))
	}
}

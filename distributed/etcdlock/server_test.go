package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/etcdtest"
)

var prefixes atomic.Int64

// newPrefix is one that no other test uses.
func newPrefix() string { return fmt.Sprintf("/test-%d-%d", os.Getpid(), prefixes.Add(1)) }

// open returns a backend on these servers, a list as in a URL.
func open(t locktest.TB, addrs, prefix string, opts ...Option) *Backend {
	t.Helper()
	b, err := Open("etcd://"+addrs+prefix, opts...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// shared returns a backend on the server that all tests share.
func onShared(t locktest.TB) *Backend {
	t.Helper()
	return open(t, etcdtest.Shared(t).Addr, newPrefix())
}

// through returns a backend whose client has these options.
func through(t locktest.TB, addr, prefix string, opts ...grpc.DialOption) *Backend {
	t.Helper()
	b, err := New(newClient(t, clientv3.Config{Endpoints: []string{addr}, DialOptions: opts}), WithPrefix(prefix))
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("%v", err)
		}
	})
	return b
}

// plainClient is a client for what a test does behind the Backend's back.
func plainClient(t locktest.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	return newClient(t, clientv3.Config{Endpoints: addrs})
}

// userClient is one of a user.
func userClient(t locktest.TB, addr, user, password string) *clientv3.Client {
	t.Helper()
	return newClient(t, clientv3.Config{Endpoints: []string{addr}, Username: user, Password: password})
}

func newClient(t locktest.TB, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	cfg.Logger = zap.NewNop()
	c, err := clientv3.New(cfg)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("%v", err)
		}
	})
	return c
}

// compact has a server forget all that was deleted.
func compact(t locktest.TB, c *clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	now, err := c.Get(ctx, "/")
	if err == nil {
		_, err = c.Compact(ctx, now.Header.Revision)
	}
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		t.Fatalf("%v", err)
	}
}

// expire deletes the keys of a lock's owners.
func expire(t locktest.TB, c *clientv3.Client, b *Backend, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	got, err := c.Get(ctx, b.dirOf(key), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		t.Fatalf("%v", err)
	}
	q := queueOf(got.Kvs)
	for _, kv := range q[:admitted(b.requestsFor(key, q))] {
		if _, err = c.Delete(ctx, string(kv.Key)); err != nil {
			t.Fatalf("%v", err)
		}
	}
}

package contender

import (
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// openZk opens a session with the TTL of all contenders.
func openZk(o Options) (conn *zk.Conn, end func() error, err error) {
	conn, _, err = zk.Connect([]string{o.Addr}, ttl, zk.WithLogInfo(false))
	return conn, func() error {
		conn.Close()
		return nil
	}, err
}

// openZkLock waits until it has the lock, also beyond the end of ctx: the library has no other way. All callers leave at the end of a
// round, so the wait is short.
func openZkLock(o Options) (Instance, error) {
	conn, end, err := openZk(o)
	return lock{func(_ context.Context, key string) (func() error, error) {
		l := zk.NewLock(conn, "/zk-lock/"+key, zk.WorldACL(zk.PermAll))
		return l.Unlock, l.Lock()
	}, end}, err
}

func openZkExists(o Options) (Instance, error) {
	conn, end, err := openZk(o)
	return limit(func(context.Context) error {
		_, _, err := conn.Exists("/")
		return err
	}, end), err
}

func openEtcd(o Options) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{o.Addr}, Logger: zap.NewNop()})
}

func openEtcdMutex(o Options) (Instance, error) {
	client, err := openEtcd(o)
	if err != nil {
		return nil, err
	}
	sessions := make(chan *concurrency.Session, o.Workers) // that nobody uses: there is one for every caller
	errs := make([]error, o.Workers)
	var all sync.WaitGroup
	for i := range o.Workers {
		all.Go(func() {
			s, err := concurrency.NewSession(client, concurrency.WithTTL(int(ttl.Seconds())))
			if errs[i] = err; err == nil {
				sessions <- s
			}
		})
	}
	all.Wait()
	l := lock{func(ctx context.Context, key string) (func() error, error) {
		s := <-sessions
		m := concurrency.NewMutex(s, "/mutex/"+key)
		if err := m.Lock(ctx); err != nil {
			sessions <- s
			return nil, err
		}
		return func() error {
			defer func() { sessions <- s }()
			return m.Unlock(cleanUp)
		}, nil
	}, func() error {
		close(sessions)
		var errs []error
		for s := range sessions {
			errs = append(errs, s.Close())
		}
		return errors.Join(errors.Join(errs...), client.Close())
	}}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func openEtcdPut(o Options) (Instance, error) {
	client, err := openEtcd(o)
	if err != nil {
		return nil, err
	}
	return lock{func(ctx context.Context, key string) (func() error, error) {
		_, err := client.Put(ctx, "/put/"+key, "")
		return nil, err
	}, client.Close}, nil
}

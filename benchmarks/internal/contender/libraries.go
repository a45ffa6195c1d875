package contender

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// clients are those of each server of o.Addr, each with a connection per goroutine, so that none waits for one.
func clients(o Options) (all []*redis.Client, end func() error) {
	for addr := range strings.SplitSeq(o.Addr, ",") {
		all = append(all, redis.NewClient(&redis.Options{
			Addr: addr, PoolSize: o.Workers, PoolTimeout: time.Minute, ReadTimeout: time.Minute, DisableIdentity: true,
		}))
	}
	return all, func() error {
		var errs []error
		for _, c := range all {
			errs = append(errs, c.Close())
		}
		return errors.Join(errs...)
	}
}

// openRedsync opens redsync on one server or several.
func openRedsync(o Options, delay time.Duration) (Instance, error) {
	all, end := clients(o)
	var pools []pool.Pool
	for _, c := range all {
		pools = append(pools, goredis.NewPool(c))
	}
	locks := redsync.New(pools...)
	return lock(func(ctx context.Context, key string) (func() error, error) {
		m := locks.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt), redsync.WithRetryDelay(delay))
		return func() error {
			_, err := m.UnlockContext(cleanUp)
			return err
		}, m.LockContext(ctx)
	}, end), nil
}

func openRedislock(o Options, pause time.Duration) (Instance, error) {
	all, end := clients(o)
	locks, options := redislock.New(all[0]), &redislock.Options{RetryStrategy: redislock.LinearBackoff(pause)}
	return lock(func(ctx context.Context, key string) (func() error, error) {
		held, err := locks.Obtain(ctx, key, ttl, options)
		return func() error { return held.Release(cleanUp) }, err
	}, end), nil
}

func openRueidislock(o Options, tryNextAfter time.Duration) (Instance, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{o.Addr}, ForceSingleClient: true},
		KeyValidity:    ttl,
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   tryNextAfter,
	})
	if err != nil {
		return Instance{}, err
	}
	return lock(func(ctx context.Context, key string) (func() error, error) {
		_, release, err := locks.WithContext(ctx, key)
		return func() error {
			release() // waits for the answer
			return nil
		}, err
	}, func() error {
		locks.Close()
		return nil
	}), nil
}

// openJava opens the algorithm of the published wllock (Java): a fair lock in the process, then SET NX in a loop without a
// pause; DEL on release, whatever the owner of the key is by then.
func openJava(o Options) (Instance, error) {
	all, end := clients(o)
	client := all[0]
	var local sync.Map // key to a channel of capacity 1, which holds a value while the key is locked here; its senders queue, first come, first served
	return lock(func(ctx context.Context, key string) (func() error, error) {
		v, ok := local.Load(key)
		if !ok {
			v, _ = local.LoadOrStore(key, make(chan struct{}, 1))
		}
		gate := v.(chan struct{})
		select {
		case gate <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		for {
			err := client.SetArgs(ctx, key, "1", redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
			if err == nil {
				break
			}
			if !errors.Is(err, redis.Nil) || ctx.Err() != nil {
				<-gate
				return nil, errors.Join(err, ctx.Err())
			}
		}
		return func() error {
			defer func() { <-gate }()
			return client.Del(cleanUp, key).Err()
		}, nil
	}, end), nil
}

func openPing(o Options) (Instance, error) {
	all, end := clients(o)
	return limit(func(ctx context.Context) error { return all[0].Ping(ctx).Err() }, end), nil
}

func openIdeal(Options) (Instance, error) {
	return limit(func(context.Context) error { return nil }, nothing), nil
}

// openMajorityPing sends a PING to each server at the same time and waits for a majority: a round trip of Redlock.
func openMajorityPing(o Options) (Instance, error) {
	all, end := clients(o)
	return limit(func(ctx context.Context) error {
		answers := make(chan error, len(all)) // so that late ones do not stay behind
		for _, c := range all {
			go func() { answers <- c.Ping(ctx).Err() }()
		}
		for range len(all)/2 + 1 {
			if err := <-answers; err != nil {
				return err
			}
		}
		return nil
	}, end), nil
}

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
	return lock(func(_ context.Context, key string) (func() error, error) {
		l := zk.NewLock(conn, "/zk-lock/"+key, zk.WorldACL(zk.PermAll))
		return l.Unlock, l.Lock()
	}, end), err
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
		return Instance{}, err
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
	l := lock(func(ctx context.Context, key string) (func() error, error) {
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
	})
	if err := errors.Join(errs...); err != nil {
		return Instance{}, errors.Join(err, l.Close())
	}
	return l, nil
}

func openEtcdPut(o Options) (Instance, error) {
	client, err := openEtcd(o)
	if err != nil {
		return Instance{}, err
	}
	return lock(func(ctx context.Context, key string) (func() error, error) {
		_, err := client.Put(ctx, "/put/"+key, "")
		return nil, err
	}, client.Close), nil
}

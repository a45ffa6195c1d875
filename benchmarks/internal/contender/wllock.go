package contender

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"golang.org/x/sync/semaphore"

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

// openBackend opens the backend of an instance, which owns it unless it is the one in memory, which all share.
type openBackend func(o Options) (distributed.Backend, error)

// system is that of the Lockers.
const system = "bench"

func overRedis(o Options) (distributed.Backend, error) { return redislock.Open("redis://" + o.Addr) }

// overRedlock opens a backend on five Redis servers, which have just been flushed: without Vouch they would count only
// after the longest TTL.
func overRedlock(query string) openBackend {
	return func(o Options) (distributed.Backend, error) {
		b, err := redlock.Open("redlock://" + o.Addr + query)
		if err != nil {
			return nil, err
		}
		err = b.Probe(context.Background(), distributed.Probe{Key: system + ":", TTL: distributed.MinTTL}) // so that it knows the system
		if err == nil {
			err = b.Vouch(context.Background())
		}
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
		return b, nil
	}
}

func overZooKeeper(o Options) (distributed.Backend, error) {
	return zklock.Open("zk://" + o.Addr + "/wllock")
}

func overEtcd(o Options) (distributed.Backend, error) {
	return etcdlock.Open("etcd://" + o.Addr + "/wllock")
}

// overMariaDB and overPostgres open a backend in a database, whose tables the first one creates.
func overMariaDB(o Options) (distributed.Backend, error) {
	b, err := mysql.Open(o.Addr)
	return b, errors.Join(mysql.Migrate(context.Background(), o.Addr), err)
}

func overPostgres(o Options) (distributed.Backend, error) {
	b, err := postgres.Open(o.Addr)
	return b, errors.Join(postgres.Migrate(context.Background(), o.Addr), err)
}

func overSQLite(o Options) (distributed.Backend, error) { return sqlite.Open(o.Addr) }

// overMemcached opens a backend on memcached. Releases go out in the background beside the next call's request.
func overMemcached(o Options) (distributed.Backend, error) {
	client := memcache.New(o.Addr)
	client.MaxIdleConns = o.Workers + 2
	return memcachelock.New(client, memcachelock.WithUnfenced())
}

func inMemory(o Options) (distributed.Backend, error) { return o.Memory, nil }

// opener returns the Open of a contender that is wllock over a backend.
func opener(open openBackend, opts ...wllock.Option) func(Options) (Instance, error) {
	return func(o Options) (Instance, error) {
		l, err := openLocker(o, open, opts...)
		return locks(l), err
	}
}

func openLocker(o Options, open openBackend, opts ...wllock.Option) (*wllock.Locker, error) {
	backend, err := open(o)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(o.Locker, opts)
	if backend != distributed.Backend(o.Memory) {
		all = append(all, wllock.WithOwnedBackend())
	}
	locker, err := wllock.New(system, backend, all...)
	if err != nil {
		return nil, errors.Join(err, backend.Close())
	}
	return locker, nil
}

// locks is the Instance of a Locker, each of whose calls locks in that way.
func locks(l *wllock.Locker, how ...wllock.CallOption) Instance {
	do := func(how ...wllock.CallOption) func(context.Context, string, func(context.Context) error) error {
		return func(ctx context.Context, key string, f func(context.Context) error) error {
			return l.Do(ctx, "key", key, f, how...)
		}
	}
	return Instance{Do: do(how...), DoShared: do(wllock.Shared()), Close: func() error { return closed(l) }}
}

// closed closes a Locker, and ends a function that a measurement has left behind.
func closed(l *wllock.Locker) error {
	ctx, cancel := context.WithTimeout(cleanUp, time.Minute)
	defer cancel()
	return l.Close(ctx)
}

// Permits is how many callers may be inside at a time, in the group about that.
const Permits = 8

func openPermits(o Options) (Instance, error) {
	l, err := openLocker(o, overRedis)
	return locks(l, wllock.Permits(Permits)), err
}

// subKeys stand for permits: each has one holder.
type subKeys struct {
	shortest bool // choose the key for which fewest callers of the instance wait; otherwise any
	mu       sync.Mutex
	here     [Permits]int // guarded by mu: callers of the instance that hold or wait
}

func openSubKeys(shortest bool) func(Options) (Instance, error) {
	return func(o Options) (Instance, error) {
		l, err := openLocker(o, overRedis)
		s, in := &subKeys{shortest: shortest}, locks(l)
		do := in.Do
		in.Do = func(ctx context.Context, key string, f func(context.Context) error) error {
			i := s.choose()
			defer func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.here[i]--
			}()
			return do(ctx, key+":"+strconv.Itoa(i), f)
		}
		return in, err
	}
}

// choose begins to look somewhere, so that keys with as many callers are chosen alike.
func (s *subKeys) choose() int {
	s.mu.Lock() // one looks at a time, otherwise several choose the same
	defer s.mu.Unlock()
	best := rand.N(Permits)
	for i, callers := range s.here {
		if s.shortest && callers < s.here[best] {
			best = i
		}
	}
	s.here[best]++
	return best
}

// openWeighted is the limit of permits.
func openWeighted(Options) (Instance, error) {
	w := semaphore.NewWeighted(Permits)
	release := func() error {
		w.Release(1)
		return nil
	}
	return lock(func(ctx context.Context, _ string) (func() error, error) {
		if err := w.Acquire(ctx, 1); err != nil {
			return nil, errors.Join(err, context.Cause(ctx))
		}
		return release, nil
	}, nothing), nil
}

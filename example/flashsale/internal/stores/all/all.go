// Package all links all lock services of the flash sale, and the drivers of all databases.
package all

import (
	"context"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/etcdlock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/distributed/redlock"
	"github.com/wllock/wllock/distributed/sqllock/mysql"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/distributed/sqllock/sqlite"
	"github.com/wllock/wllock/distributed/zklock"
	"github.com/wllock/wllock/example/flashsale/internal/stores"
)

// Stores are the lock services beside memory.
var Stores = []stores.Store{
	store(redislock.Open, "redis://host:port, rediss://, unix://, redis+sentinel://, redis+cluster://",
		"redis", "rediss", "unix", "redis+unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"),
	store(redlock.Open, "redlock://h1,h2,h3", "redlock", "redlocks"),
	store(zklock.Open, "zk://host:port,host:port/chroot", "zk"),
	store(etcdlock.Open, "etcd://host:port,host:port", "etcd", "etcds"),
	migrated(postgres.Migrate, store(postgres.Open, "postgres://user:password@host/database", "postgres", "postgresql")),
	migrated(mysql.Migrate, store(mysql.Open, "mysql://", "mysql")),
	store(sqlite.Open, "sqlite:///FILE", "sqlite"),
}

// store leaves out options. It keeps a nil pointer out of the interface: that would not be nil.
func store[B distributed.Backend, O any](open func(string, ...O) (B, error), allowed string, schemes ...string) stores.Store {
	return stores.Store{Allowed: allowed, Schemes: schemes, Open: func(url string) (distributed.Backend, error) {
		b, err := open(url)
		if err != nil {
			return nil, err
		}
		return b, nil
	}}
}

func migrated[O any](migrate func(context.Context, string, ...O) error, s stores.Store) stores.Store {
	s.Migrate = func(ctx context.Context, url string) error { return migrate(ctx, url) }
	return s
}

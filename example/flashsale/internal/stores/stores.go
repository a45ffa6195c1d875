// Package stores links all lock services of the flash sale, and all databases.
package stores

import (
	"context"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/etcdlock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/distributed/redlock"
	"github.com/wllock/wllock/distributed/sqllock/mysql"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/distributed/sqllock/sqlite"
	"github.com/wllock/wllock/distributed/zklock"
	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// Allowed lists the URLs of the lock services beside memory.
const Allowed = "redis://host:port, rediss://, unix://, redis+sentinel://, redis+cluster://, redlock://h1,h2,h3, " +
	"zk://host:port,host:port/chroot, etcd://host:port,host:port, postgres://user:password@host/database, mysql://, sqlite:///FILE"

// opener opens the lock service of a URL whose scheme is its own. The first to do so creates what it needs.
type opener = func(ctx context.Context, url string, first bool) (distributed.Observable, error)

// All are these lock services, by the schemes of their URLs.
var All = map[string]opener{
	"redis": redis, "rediss": redis, "unix": redis, "redis+unix": redis, "redis+sentinel": redis, "rediss+sentinel": redis,
	"redis+cluster": redis, "rediss+cluster": redis, "redlock": majority, "redlocks": majority, "zk": store(zklock.Open, nil),
	"etcd": etcd, "etcds": etcd, "postgres": pg, "postgresql": pg,
	"mysql": store(mysql.Open, mysql.Migrate), "sqlite": store(sqlite.Open, nil),
}

var (
	redis, majority = store(redislock.Open, nil), store(redlock.Open, nil)
	etcd, pg        = store(etcdlock.Open, nil), store(postgres.Open, postgres.Migrate)
)

func init() { sqlshop.Servers["mysql"], sqlshop.Servers["postgres"] = mysql.OpenDB, postgres.OpenDB }

// store leaves out options. It keeps a nil pointer out of the interface: that would not be nil.
func store[B distributed.Observable, O any](open func(string, ...O) (B, error), migrate func(context.Context, string, ...O) error) opener {
	return func(ctx context.Context, url string, first bool) (distributed.Observable, error) {
		if first && migrate != nil {
			if err := migrate(ctx, url); err != nil {
				return nil, err
			}
		}
		b, err := open(url)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
}

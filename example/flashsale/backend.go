package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/etcdlock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/distributed/redlock"
	"github.com/wllock/wllock/distributed/sqllock/mysql"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/distributed/sqllock/sqlite"
	"github.com/wllock/wllock/distributed/zklock"
)

const (
	memoryURL       = "memory://"
	backendsAllowed = "memory:// (inside one process), redis://host:port, rediss://, unix://, redis+sentinel://, redis+cluster://, " +
		"redlock://h1,h2,h3, zk://host:port,host:port/chroot, etcd://host:port,host:port, " +
		"postgres://user:password@host/database, mysql://, sqlite:///FILE"
)

// service is a kind of lock service, by the schemes of its URLs.
type service struct {
	schemes []string
	open    func(url string) (distributed.Backend, error)
	migrate func(ctx context.Context, url string) error // creates what it needs; nil: it needs nothing
}

var services = []service{
	{schemes: []string{"memory"}, open: func(string) (distributed.Backend, error) { return memlock.New(), nil }},
	{
		schemes: []string{"redis", "rediss", "unix", "redis+unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"},
		open:    func(url string) (distributed.Backend, error) { return orNil(redislock.Open(url)) },
	},
	{schemes: []string{"redlock", "redlocks"}, open: func(url string) (distributed.Backend, error) { return orNil(redlock.Open(url)) }},
	{schemes: []string{"zk"}, open: func(url string) (distributed.Backend, error) { return orNil(zklock.Open(url)) }},
	{schemes: []string{"etcd", "etcds"}, open: func(url string) (distributed.Backend, error) { return orNil(etcdlock.Open(url)) }},
	{
		schemes: []string{"postgres", "postgresql"},
		open:    func(url string) (distributed.Backend, error) { return orNil(postgres.Open(url)) },
		migrate: func(ctx context.Context, url string) error { return postgres.Migrate(ctx, url) },
	},
	{
		schemes: []string{"mysql"},
		open:    func(url string) (distributed.Backend, error) { return orNil(mysql.Open(url)) },
		migrate: func(ctx context.Context, url string) error { return mysql.Migrate(ctx, url) },
	},
	{
		schemes: []string{"sqlite"},
		open:    func(url string) (distributed.Backend, error) { return orNil(sqlite.Open(url)) },
	},
}

// serviceOf returns the service that url names, by its scheme alone.
func serviceOf(url string) (service, bool) {
	scheme, _, ok := strings.Cut(url, "://")
	i := slices.IndexFunc(services, func(s service) bool { return slices.Contains(s.schemes, scheme) })
	if !ok || i < 0 {
		return service{}, false
	}
	return services[i], true
}

// openBackend opens the lock service that url names.
func openBackend(url string) (distributed.Backend, error) {
	s, ok := serviceOf(url)
	if !ok {
		scheme, _, _ := strings.Cut(url, "://")
		return nil, fmt.Errorf("no lock service for %q; allowed: %s", scheme, backendsAllowed)
	}
	return s.open(url)
}

// migrateBackend creates the tables of a lock service that is a database. It is called once, before any process opens it.
func migrateBackend(ctx context.Context, url string) error {
	s, ok := serviceOf(url)
	if !ok || s.migrate == nil {
		return nil
	}
	return s.migrate(ctx, url)
}

// orNil keeps a nil pointer out of the interface: that would not be nil.
func orNil[B distributed.Backend](b B, err error) (distributed.Backend, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}

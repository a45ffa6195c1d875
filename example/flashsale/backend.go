package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/distributed/redlock"
	"github.com/wllock/wllock/distributed/zklock"
)

const (
	memoryURL       = "memory://"
	zookeeper       = "zk"
	backendsAllowed = "memory:// (inside one process), redis://host:port, rediss://, unix://, redis+sentinel://, redis+cluster://, " +
		"redlock://h1,h2,h3, zk://host:port,host:port/chroot"
)

var redisSchemes = []string{"redis", "rediss", "unix", "redis+unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"}

var redlockSchemes = []string{"redlock", "redlocks"}

func knownScheme(scheme string) bool {
	return scheme == "memory" || scheme == zookeeper || slices.Contains(redisSchemes, scheme) || slices.Contains(redlockSchemes, scheme)
}

// openBackend opens the lock service that url names.
func openBackend(url string) (distributed.Backend, error) {
	switch scheme, _, _ := strings.Cut(url, "://"); {
	case scheme == "memory":
		return memlock.New(), nil
	case scheme == zookeeper:
		return orNil(zklock.Open(url))
	case slices.Contains(redlockSchemes, scheme):
		return orNil(redlock.Open(url))
	case slices.Contains(redisSchemes, scheme):
		return orNil(redislock.Open(url))
	default:
		return nil, fmt.Errorf("no lock service for %q; allowed: %s", scheme, backendsAllowed)
	}
}

// orNil keeps a nil pointer out of the interface: that would not be nil.
func orNil[B distributed.Backend](b B, err error) (distributed.Backend, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}

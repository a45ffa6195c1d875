package contender

import (
	"github.com/bradfitz/gomemcache/memcache"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memcachelock"
)

// memcachedCommands are those of wllock's client, as memcached counts them: gets, add and cas.
var memcachedCommands = []string{"get", "set"}

// overMemcached opens a backend on memcached. Releases go out in the background beside the next call's request.
func overMemcached(o Options) (distributed.Backend, bool, error) {
	client := memcache.New(o.Addr)
	client.MaxIdleConns = o.Workers + 2
	b, err := memcachelock.New(client, memcachelock.WithUnfenced())
	return b, false, err
}

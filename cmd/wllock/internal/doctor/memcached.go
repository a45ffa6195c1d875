package doctor

import (
	"context"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed/memcachelock"
)

// memcachedWait bounds what is asked of one server.
const memcachedWait = 2 * time.Second

// memcached has each server lock and release: the others go on without one that does not.
func memcached(ctx context.Context, p *patient) {
	for host := range strings.SplitSeq(p.url.Host, ",") {
		one := *p.url
		one.Host, p.where = host, host
		if err := memcachedServer(ctx, one.String()); err != nil {
			p.fail(Finding{
				Subject: "server", What: err.Error(), Means: "no lock can be acquired whose key lies on it, and those there are lost",
				Mend: "start it: a list without it has other keys lie on other servers, so it is changed while no process works",
			})
		} else {
			p.fine("server", "it locks and releases")
		}
	}
	p.where = ""
}

func memcachedServer(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, memcachedWait)
	defer cancel()
	b, err := memcachelock.Open(url)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }() // nil, or a socket's
	return b.Ping(ctx)
}

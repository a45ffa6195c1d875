package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/wllock/wllock/distributed/natslock"
)

// natsWait bounds what is asked.
const natsWait = 4 * time.Second

// natsServers looks at the stream. How often a server has its disk keep what it writes no client can see.
func natsServers(ctx context.Context, p *patient) {
	ctx, cancel := context.WithTimeout(ctx, natsWait)
	defer cancel()
	b, err := natslock.Open(p.url.String())
	if err != nil {
		p.fail(Finding{Subject: "URL", What: err.Error()})
		return
	}
	defer func() { _ = b.Close() }() // nil
	info, err := b.Stream(ctx)
	if err != nil {
		p.fail(Finding{Subject: "stream", What: err.Error(), Means: "no lock can be acquired"})
		return
	}
	c := info.Config
	p.judge(c.Storage == jetstream.MemoryStorage, Error, Finding{
		Subject: "storage", What: fmt.Sprintf("the stream %s is kept in: %v", c.Name, c.Storage),
		Means: "a server that is restarted forgets all locks, and two holders are possible", Mend: "remove the stream while no process works: it is made anew on disk",
	})
	p.judge(c.Replicas < 3, Warning, Finding{
		Subject: "replicas", What: fmt.Sprintf("the stream %s has %d replicas", c.Name, c.Replicas),
		Means: "when its server is lost, so are all locks, and two holders are possible", Mend: "nats stream edit " + c.Name + " --replicas 3",
	})
	if c.Replicas > 1 && info.Cluster != nil {
		away := 0
		for _, peer := range info.Cluster.Replicas {
			if peer.Offline || !peer.Current {
				away++
			}
		}
		p.judge(away > 0, Warning, Finding{
			Subject: "replicas", What: fmt.Sprintf("%d replicas are away, or behind", away), Means: "without a majority no lock can be acquired", Mend: "start them",
		})
	}
	p.fine("disk", "not seen by a client: unless each server has sync_interval: always, locks of up to two minutes are lost when a majority loses power")
}

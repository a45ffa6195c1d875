package redislimit

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/redisopts"
)

// timeouts allow a connection more time than an answer: no request waits for it longer than answerWait, but later ones can
// use it.
var timeouts = redisopts.Timeouts{Dial: time.Second, IO: answerWait, Pool: answerWait}

// derive makes the private client of a Limiter from the caller's. A repeated command would charge twice if only the reply
// was lost. It sends nothing but charges, so that its user needs few rights: no CLIENT SETINFO, and no COMMAND in a cluster. A
// client of a type that is not go-redis's own stays as it is.
func derive(client redis.UniversalClient) (c redis.UniversalClient, derived bool) {
	switch c := client.(type) {
	case *redis.Client:
		o := redisopts.Single(c.Options(), timeouts)
		o.DisableIdentity = true
		return redis.NewClient(o), true
	case *redis.ClusterClient:
		o := redisopts.Cluster(c.Options(), timeouts)
		o.DisableIdentity, o.DisableRoutingPolicies = true, true
		return redis.NewClusterClient(o), true
	case *redis.Ring:
		o := redisopts.Ring(c.Options(), timeouts)
		o.DisableIdentity = true
		return redis.NewRing(o), true
	}
	return client, false
}

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
// was lost. A client of a type that is not go-redis's own stays as it is.
func derive(client redis.UniversalClient) (c redis.UniversalClient, derived bool) {
	switch c := client.(type) {
	case *redis.Client:
		return redis.NewClient(redisopts.Single(c.Options(), timeouts)), true
	case *redis.ClusterClient:
		return redis.NewClusterClient(redisopts.Cluster(c.Options(), timeouts)), true
	case *redis.Ring:
		return redis.NewRing(redisopts.Ring(c.Options(), timeouts)), true
	}
	return client, false
}

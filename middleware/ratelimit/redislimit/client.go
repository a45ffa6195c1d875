package redislimit

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// dialTimeout is how long a connection may take to be made: nobody waits for it longer than answerWait, but who comes
// later will find it.
const dialTimeout = time.Second

// derive makes the private client of a Limiter from the caller's. It obeys deadlines: by default go-redis waits for its
// own time-outs of seconds, however short ours is. And it never repeats a command, which would charge twice if it was
// only the reply that was lost. A client of a type that is not go-redis's own stays as it is.
func derive(client redis.UniversalClient) (c redis.UniversalClient, derived bool) {
	switch c := client.(type) {
	case *redis.Client:
		o := *c.Options()
		o.MaxRetries, o.DialerRetries = -1, 1
		o.ContextTimeoutEnabled = true
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, answerWait, answerWait, answerWait
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		o.AutoPipelineOptions, o.ClientSideCacheConfig, o.ClientSideCache = nil, nil, nil
		o.PushNotificationProcessor = nil
		return redis.NewClient(&o), true
	case *redis.ClusterClient:
		o := *c.Options()
		o.MaxRetries, o.DialerRetries = -1, 1
		o.ContextTimeoutEnabled = true
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, answerWait, answerWait, answerWait
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		o.AutoPipelineOptions = nil
		o.PushNotificationProcessor = nil
		return redis.NewClusterClient(&o), true
	case *redis.Ring:
		o := *c.Options()
		o.MaxRetries, o.DialerRetries = -1, 1
		o.ContextTimeoutEnabled = true
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, answerWait, answerWait, answerWait
		return redis.NewRing(&o), true
	}
	return client, false
}

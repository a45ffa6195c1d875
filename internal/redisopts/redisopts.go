// Package redisopts holds what redislock, redislimit and config have in common about Redis: the options of a client of
// our own, and the grammar of URLs.
package redisopts

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Timeouts bound one try of a client: to connect, to read or write, and to get a connection from the pool.
type Timeouts struct{ Dial, IO, Pool time.Duration }

// Single returns a copy of o for a client of our own. It obeys deadlines: by default go-redis waits for its own timeouts of
// seconds, however short ours are. And it never repeats a command, which may have been done although its reply was lost.
// Connections carry plain commands only: nothing is cached, pushed or sent later.
func Single(o *redis.Options, t Timeouts) *redis.Options {
	c := *o
	t.set(&c.MaxRetries, &c.DialerRetries, &c.ContextTimeoutEnabled, &c.DialTimeout, &c.ReadTimeout, &c.WriteTimeout, &c.PoolTimeout)
	c.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c.AutoPipelineOptions, c.ClientSideCacheConfig, c.ClientSideCache = nil, nil, nil
	c.PushNotificationProcessor = nil
	c.Limiter = nil // a breaker of the application's, which would count our commands, and fail them
	waits(&c.PoolSize, &c.MaxActiveConns)
	return &c
}

// Cluster is Single for a cluster.
func Cluster(o *redis.ClusterOptions, t Timeouts) *redis.ClusterOptions {
	c := *o
	t.set(&c.MaxRetries, &c.DialerRetries, &c.ContextTimeoutEnabled, &c.DialTimeout, &c.ReadTimeout, &c.WriteTimeout, &c.PoolTimeout)
	c.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c.AutoPipelineOptions = nil
	c.PushNotificationProcessor = nil
	waits(&c.PoolSize, &c.MaxActiveConns)
	return &c
}

// Failover is Single for a client that asks sentinels. What it finds is for Single.
func Failover(o *redis.FailoverOptions, t Timeouts) *redis.FailoverOptions {
	c := *o
	t.set(&c.MaxRetries, &c.DialerRetries, &c.ContextTimeoutEnabled, &c.DialTimeout, &c.ReadTimeout, &c.WriteTimeout, &c.PoolTimeout)
	return &c
}

// Ring is Single for a ring.
func Ring(o *redis.RingOptions, t Timeouts) *redis.RingOptions {
	c := *o
	t.set(&c.MaxRetries, &c.DialerRetries, &c.ContextTimeoutEnabled, &c.DialTimeout, &c.ReadTimeout, &c.WriteTimeout, &c.PoolTimeout)
	waits(&c.PoolSize, &c.MaxActiveConns)
	return &c
}

// noPassword is sent for a user without a password. Redis takes any from a user that needs none (nopass), and refuses it from others. Without one
// go-redis would not log in at all, and run as the default user.
const noPassword = "no password"

// PasswordOf returns the password to send for a user.
func PasswordOf(username, password string) string {
	if username != "" && password == "" {
		return noPassword
	}
	return password
}

// set changes what all kinds of options have in common.
func (t Timeouts) set(retries, dialerRetries *int, deadlines *bool, dial, read, write, pool *time.Duration) {
	*retries, *dialerRetries = -1, 1
	*deadlines = true
	*dial, *read, *write, *pool = t.Dial, t.IO, t.IO, t.Pool
}

// waits makes MaxActiveConns the size of the pool, where an exchange waits for a connection: go-redis fails at once where there
// are that many, which would look like an outage.
func waits(size, limit *int) {
	if *limit > 0 {
		*size, *limit = *limit, 0
	}
}

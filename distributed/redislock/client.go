package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// dialTimeout and ioTimeout are the longest any exchange may take; steps of short leases have shorter limits of
	// their own. The defaults of go-redis, 5 s and five tries, are longer than a lease.
	dialTimeout = time.Second
	ioTimeout   = 2 * time.Second
	// shareTimeout is ioTimeout in a cluster, where another node may answer instead: it is asked for the layout after the
	// one that hangs. It is no less than a script's longest try.
	shareTimeout = longestTry
	// askTimeout is for a sentinel's answer: after two the next one is asked, while who dials is still there.
	askTimeout = dialTimeout / 3
	// connections is how many there may be to one server beside the subscription, or more if the caller's client has more:
	// one for all that can be under way. Who finds none waits for PoolTimeout, past the deadline of its context.
	connections = maxLanes + maxWorkers + maxBeating + 4 + 1 // 4 renewals, and a probe
)

// derive makes the private client of a Backend from the caller's. It differs in that it never repeats a command by
// itself, which we do with the knowledge of what may be repeated and until when, and obeys deadlines.
func derive(client redis.UniversalClient, s settings) (transport, string, error) {
	switch c := client.(type) {
	case *redis.Client:
		o := *c.Options()
		if o.Addr == sentinelAddr {
			return behindSentinels(&o, s), nameOf(&o), nil
		}
		o.Dialer = bounded(o.Dialer, dialTimeout)
		return single(&o, s), nameOf(&o), nil
	case *redis.ClusterClient:
		o := *c.Options()
		if o.ClusterSlots != nil { // go-redis asks sentinels so, for the clients of NewFailoverClusterClient, and looks again seldom
			return nil, "", errors.New("redislock: a ClusterClient with ClusterSlots may stay with an old primary; use a FailoverClient")
		}
		if o.Dialer != nil {
			o.Dialer = bounded(o.Dialer, dialTimeout)
		}
		return cluster(&o, s), "cluster " + strings.Join(o.Addrs, ","), nil
	case nil:
		return nil, "", errors.New("redislock: no client")
	default: // a Ring moves keys to other servers when one fails: two owners
		return nil, "", fmt.Errorf("redislock: a %T cannot keep locks; use a Client, a FailoverClient or a ClusterClient", client)
	}
}

func single(o *redis.Options, s settings) *goRedis {
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, ioTimeout, ioTimeout, ioTimeout
	o.PoolSize, o.MaxConcurrentDials = poolOf(o.PoolSize)
	o.PipelinePoolSize = -1 // pipelines share the connections
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.AutoPipelineOptions, o.ClientSideCacheConfig, o.ClientSideCache = nil, nil, nil
	o.PushNotificationProcessor = nil
	s.authenticate(&o.Username, &o.Password, &o.CredentialsProvider, &o.CredentialsProviderContext, &o.StreamingCredentialsProvider)
	return &goRedis{client: redis.NewClient(o)}
}

// behindSentinels is single for the options of a client whose dialer asks sentinels.
func behindSentinels(o *redis.Options, s settings) *goRedis {
	p := newPrimary(o.Dialer)
	o.Dialer = bounded(p.connect, dialTimeout)
	g := single(o, s)
	g.primary = p
	return g
}

// failover has a client of our own ask the sentinels, which is all it is for.
func failover(o *redis.FailoverOptions, s settings) *goRedis {
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, askTimeout, askTimeout, ioTimeout
	finder := redis.NewFailoverClient(o)
	found := *finder.Options()
	g := behindSentinels(&found, s)
	g.finder = finder
	return g
}

func cluster(o *redis.ClusterOptions, s settings) *goRedis {
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, shareTimeout, shareTimeout, ioTimeout
	o.PoolSize, o.MaxConcurrentDials = poolOf(o.PoolSize)
	o.PipelinePoolSize = -1
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.AutoPipelineOptions = nil
	o.PushNotificationProcessor = nil
	s.authenticate(&o.Username, &o.Password, &o.CredentialsProvider, &o.CredentialsProviderContext, &o.StreamingCredentialsProvider)
	return &goRedis{client: redis.NewClusterClient(o), cluster: true}
}

// poolOf returns a size for the pool that is enough for us, and as many dials.
func poolOf(size int) (connect, dial int) { return max(size, connections), max(size, connections) }

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// bounded makes a caller's dialer return after limit at the latest, or when ctx is over. By itself it may look at neither:
// go-redis's own goes by the time-out of the client that it was made for, in a handshake and when it asks sentinels. Who
// dials and is not waited for any more closes what comes of it.
func bounded(dial dialer, limit time.Duration) dialer {
	type dialed struct {
		conn net.Conn
		err  error
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		done := make(chan dialed) // without a buffer: what is sent was received
		go func() {
			conn, err := dial(ctx, network, addr)
			select {
			case done <- dialed{conn, err}:
			case <-ctx.Done():
				if err == nil {
					_ = conn.Close()
				}
			}
		}()
		select {
		case d := <-done:
			return d.conn, d.err
		case <-ctx.Done():
			return nil, fmt.Errorf("dial: %w", ctx.Err())
		}
	}
}

// nameOf names the server without credentials.
func nameOf(o *redis.Options) string {
	if o.Network == "unix" {
		return "unix:" + o.Addr
	}
	return fmt.Sprintf("%s/%d", o.Addr, o.DB)
}

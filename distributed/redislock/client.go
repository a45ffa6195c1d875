package redislock

import (
	"context"
	"errors"
	"fmt"
	"os"
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
)

// derive makes the private client of a Backend from the caller's. It differs in that it never repeats a command by
// itself, which we do with the knowledge of what may be repeated and until when, and obeys deadlines.
func derive(client redis.UniversalClient, s settings) (transport, string, error) {
	switch c := client.(type) {
	case *redis.Client:
		o := *c.Options()
		return single(&o, s), nameOf(&o), nil
	case *redis.ClusterClient:
		o := *c.Options()
		return cluster(&o, s), "cluster " + strings.Join(o.Addrs, ","), nil
	case nil:
		return nil, "", errors.New("redislock: no client")
	default: // a Ring moves keys to other servers when one fails: two owners
		return nil, "", fmt.Errorf("redislock: a %T cannot keep locks; use a Client, a FailoverClient or a ClusterClient", client)
	}
}

func single(o *redis.Options, s settings) transport {
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, ioTimeout, ioTimeout, ioTimeout
	o.PipelinePoolSize = -1 // pipelines share the connections
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.AutoPipelineOptions, o.ClientSideCacheConfig, o.ClientSideCache = nil, nil, nil
	o.PushNotificationProcessor = nil
	s.authenticate(&o.Username, &o.Password, &o.CredentialsProviderContext)
	return &goRedis{client: redis.NewClient(o)}
}

func failover(o *redis.FailoverOptions, s settings) transport {
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, ioTimeout, ioTimeout, ioTimeout
	o.PipelinePoolSize = -1
	s.authenticate(&o.Username, &o.Password, &o.CredentialsProviderContext)
	return &goRedis{client: redis.NewFailoverClient(o)}
}

func cluster(o *redis.ClusterOptions, s settings) transport {
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, ioTimeout, ioTimeout, ioTimeout
	o.PipelinePoolSize = -1
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.AutoPipelineOptions = nil
	o.PushNotificationProcessor = nil
	s.authenticate(&o.Username, &o.Password, &o.CredentialsProviderContext)
	return &goRedis{client: redis.NewClusterClient(o), cluster: true}
}

type credentials = func(context.Context) (string, string, error)

// authenticate puts the credentials of the options in place of the client's.
func (s settings) authenticate(username, password *string, provider *credentials) {
	if s.username != "" {
		*username = s.username
	}
	if s.passwordFile == "" {
		return
	}
	name, file := *username, s.passwordFile
	*password = ""
	*provider = func(context.Context) (string, string, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", "", fmt.Errorf("redislock: read the password: %w", err)
		}
		return name, strings.TrimRight(string(text), " \t\r\n"), nil
	}
}

// nameOf names the server without credentials.
func nameOf(o *redis.Options) string {
	if o.Network == "unix" {
		return "unix:" + o.Addr
	}
	return fmt.Sprintf("%s/%d", o.Addr, o.DB)
}

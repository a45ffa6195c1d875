package conn

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/redisopts"
)

const (
	// DialTimeout and ioTimeout bound any exchange. Steps of short leases have shorter limits of their own. The defaults of
	// go-redis, 5 s and five tries, are longer than a lease.
	DialTimeout = 2 * time.Second
	ioTimeout   = 2 * time.Second
	// sharedDialTimeout is shorter, where another server may be reached instead.
	sharedDialTimeout = time.Second
	// askTimeout bounds a sentinel's answer: after two the next sentinel is asked, while the dialer still waits.
	askTimeout = sharedDialTimeout / 3
)

var (
	timeouts = redisopts.Timeouts{Dial: DialTimeout, IO: ioTimeout, Pool: ioTimeout}
	// sharedTimeouts are shorter in a cluster, where another node may answer instead: the layout is asked for after the
	// exchange that hangs. IO is no less than a script's longest try.
	sharedTimeouts   = redisopts.Timeouts{Dial: sharedDialTimeout, IO: LongestTry, Pool: ioTimeout}
	sentinelTimeouts = redisopts.Timeouts{Dial: sharedDialTimeout, IO: askTimeout, Pool: ioTimeout}
)

// New derives a private client from the caller's, and returns it with the server's name, without credentials. Unlike the
// caller's it never repeats a command by itself, because we know what may be repeated and until when, and it obeys
// deadlines.
func New(client redis.UniversalClient, c Config) (t Transport, name string, err error) {
	switch client := client.(type) {
	case *redis.Client:
		o := *client.Options()
		if o.Addr == sentinelAddr {
			return behindSentinels(&o, c), nameOf(&o), nil
		}
		return single(&o, c, DialTimeout), nameOf(&o), nil
	case *redis.ClusterClient:
		o := *client.Options()
		if o.ClusterSlots != nil { // go-redis asks sentinels so, for the clients of NewFailoverClusterClient, and looks again seldom
			return nil, "", errors.New("a ClusterClient with ClusterSlots may stay with an old primary: use a FailoverClient")
		}
		return cluster(&o, c), "cluster " + strings.Join(o.Addrs, ","), nil
	case nil:
		return nil, "", errors.New("no client")
	default: // a Ring moves keys to other servers when one fails: two owners
		return nil, "", fmt.Errorf("a %T cannot keep locks: use a Client, a FailoverClient or a ClusterClient", client)
	}
}

// Single returns a Transport for one server with these options, which stay unchanged.
func Single(o *redis.Options, c Config) Transport { return single(o, c, DialTimeout) }

func single(o *redis.Options, c Config, dial time.Duration) *goRedis {
	limit := o.MaxActiveConns
	o = redisopts.Single(o, c.withAcks(timeouts))
	silence := new(tlsSilence)
	o.Dialer = deferring(naming(dialerOf(o.Dialer, o.TLSConfig, dial, silence), c.nameFor(o.ClientName)))
	room := c.roomFor(limit, &o.PoolSize, &o.MaxConcurrentDials)
	o.PipelinePoolSize = -1  // pipelines share the connections
	o.DisableIdentity = true // a round trip less for each connection: no CLIENT SETINFO
	c.authenticate(&o.Username, &o.Password, &o.CredentialsProvider, &o.CredentialsProviderContext, &o.StreamingCredentialsProvider)
	return &goRedis{client: redis.NewClient(o), prefix: c.PrefixOf, setup: setupTrips(o.TLSConfig, o.DB), silence: silence, room: room, acks: c.Acks}
}

// behindSentinels is single for the options of a client whose dialer asks sentinels.
func behindSentinels(o *redis.Options, c Config) *goRedis {
	p := newPrimary(o.Dialer)
	o.Dialer = p.connect
	g := single(o, c, sharedDialTimeout)
	g.primary = p
	return g
}

// failover has a client of our own ask the sentinels, and do nothing else.
func failover(o *redis.FailoverOptions, c Config) *goRedis {
	finder := redis.NewFailoverClient(redisopts.Failover(o, sentinelTimeouts))
	found := *finder.Options()
	g := behindSentinels(&found, c)
	g.finder = finder
	return g
}

func cluster(o *redis.ClusterOptions, c Config) *goRedis {
	limit := o.MaxActiveConns
	o = redisopts.Cluster(o, c.withAcks(sharedTimeouts))
	silence := new(tlsSilence)
	o.Dialer = deferring(naming(dialerOf(o.Dialer, o.TLSConfig, sharedDialTimeout, silence), c.nameFor(o.ClientName)))
	room := c.roomFor(limit, &o.PoolSize, &o.MaxConcurrentDials)
	o.PipelinePoolSize = -1
	o.DisableIdentity = true
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	o.DisableRoutingPolicies = true // every call goes where its keys are; policies would first ask some node for COMMAND
	c.authenticate(&o.Username, &o.Password, &o.CredentialsProvider, &o.CredentialsProviderContext, &o.StreamingCredentialsProvider)
	return &goRedis{client: redis.NewClusterClient(o), cluster: true, prefix: c.PrefixOf, setup: setupTrips(o.TLSConfig, 0), silence: silence, room: room, acks: c.Acks}
}

// fewestConns is the least that MaxActiveConns may be: one connection for callers, one for what keeps their leases, and one
// for the questions whether the server is there.
const fewestConns = 3

// withAcks allows for the time that a reply to WAIT may take.
func (c Config) withAcks(t redisopts.Timeouts) redisopts.Timeouts {
	t.IO += c.Acks.Within
	return t
}

// room is how many exchanges may be under way with one server.
type room struct {
	callers int  // of single calls, before they share one
	acked   int  // of Acked calls, likewise
	limited bool // others may have to wait for a connection
}

// roomFor sets the size of the pool, and as many dials: the caller's, but at least one connection for each exchange that can
// be under way, beside the subscription; or limit, the caller's MaxActiveConns, if there is one. Then callers leave two connections
// to others, so that no renewal, and no question whether the server is there, waits for them.
func (c Config) roomFor(limit int, size, dials *int) room {
	r, fewest := room{callers: MaxSlots}, fewestConns
	if c.Acks.Replicas > 0 {
		r.acked, fewest = ackSlots, fewestConns+1
	}
	need := MaxSlots + c.Pipelines + r.acked
	if limit > 0 {
		*size = max(limit, fewest)
		if r.limited = *size < need; r.limited {
			r.acked = min(r.acked, 1)
		}
		r.callers = min(MaxSlots, *size-fewest+1)
	}
	if !r.limited {
		*size = max(*size, need)
	}
	*dials = *size
	return r
}

// nameFor returns the name of connections; "": they have the one that the caller's client gives them.
func (c Config) nameFor(given string) string {
	if given != "" {
		return ""
	}
	return c.ClientName
}

// nameOf names the server without credentials.
func nameOf(o *redis.Options) string {
	if o.Network == "unix" {
		return "unix:" + o.Addr
	}
	return fmt.Sprintf("%s/%d", o.Addr, o.DB)
}

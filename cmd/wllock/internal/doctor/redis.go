package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/redisopts"
)

const (
	// skewAllowed is the difference between two clocks that nobody notices in times that are shown.
	skewAllowed = time.Second
	// fullShare is how full a server may be, in percent, of memory or of clients.
	fullShare = 90
	// pushWait is how long a message may take.
	pushWait = 2 * time.Second
	// oldestMajor is the first version with what redislock needs.
	oldestMajor = 7
	// hosted ends what mends a setting: services refuse the command.
	hosted = "; for a hosted service, among its parameters"
)

// patience is for one answer.
var patience = redisopts.Timeouts{Dial: 3 * time.Second, IO: 3 * time.Second, Pool: 3 * time.Second}

// silent keeps go-redis from writing beside the findings, which say the same.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// redisServers looks at the server, each node of a cluster, or each server of a Redlock.
func redisServers(ctx context.Context, p *patient) {
	redis.SetLogger(silent{})
	scheme, known := redisopts.SchemeOf(p.url.Scheme)
	if !known {
		return
	}
	if scheme.Kind == redisopts.KindCluster {
		o, err := redisopts.ParseCluster(p.url, scheme.TLS)
		if err != nil {
			p.fail(Finding{Subject: "URL", What: err.Error()})
			return
		}
		client := redis.NewClusterClient(redisopts.Cluster(o, patience))
		defer func() { _ = client.Close() }()
		p.redisCluster(ctx, client)
		return
	}
	clients, err := clientsOf(p.url, scheme)
	if err != nil {
		p.fail(Finding{Subject: "URL", What: err.Error()})
		return
	}
	if scheme.Kind == redisopts.KindRedlock {
		p.judge(len(clients)%2 == 0, Warning, Finding{
			Subject: "servers", What: fmt.Sprintf("%d independent servers", len(clients)),
			Means: "an even number survives no more losses than one less", Mend: "add or remove one",
		})
	}
	for _, client := range clients {
		if len(clients) > 1 {
			p.where = client.Options().Addr
		}
		p.redisNode(ctx, client, scheme.Kind)
		_ = client.Close()
	}
}

// clientsOf opens the servers of a URL, one after the other: plain ones, a primary behind sentinels, independent ones.
func clientsOf(u *url.URL, s redisopts.Scheme) ([]*redis.Client, error) {
	switch s.Kind {
	case redisopts.KindSentinel:
		o, err := redisopts.ParseSentinel(u, s.TLS)
		if err != nil {
			return nil, err
		}
		return []*redis.Client{redis.NewFailoverClient(redisopts.Failover(o, patience))}, nil
	case redisopts.KindRedlock:
		rest := *u
		files, err := redisopts.TakeTLS(&rest)
		if err != nil {
			return nil, err
		}
		servers, err := redisopts.ParseRedlock(&rest, s.TLS, files)
		var all []*redis.Client
		for _, o := range servers {
			all = append(all, redis.NewClient(redisopts.Single(o, patience)))
		}
		return all, err
	}
	o, err := redisopts.ParseSingle(u.String(), u)
	if err != nil {
		return nil, err
	}
	return []*redis.Client{redis.NewClient(redisopts.Single(o, patience))}, nil
}

func (p *patient) redisCluster(ctx context.Context, client *redis.ClusterClient) {
	text, err := client.ClusterInfo(ctx).Result()
	switch {
	case redis.IsPermissionError(err):
		p.fine("cluster", "its state is not looked at: %v. This takes redis-cli ACL SETUSER %s '+cluster|info'", err, p.user())
	case err != nil:
		p.fail(Finding{Subject: "cluster", What: err.Error(), Means: "the URL is for a cluster", Mend: "redis:// if the server is not part of one"})
		return
	default:
		info := fieldsOf(text)
		p.judge(info["cluster_state"] != "ok", Error, Finding{
			Subject: "cluster", What: fmt.Sprintf("state %s, %s of 16384 slots, %s primaries", info["cluster_state"], info["cluster_slots_ok"], info["cluster_size"]),
			Means: "keys of slots that no node serves cannot be locked", Mend: "redis-cli --cluster fix HOST:PORT",
		})
	}
	var mu sync.Mutex
	var nodes []*redis.Client                                                         // guarded by mu
	_ = client.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error { // all at once
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	})
	for _, node := range nodes {
		p.where = node.Options().Addr
		p.redisNode(ctx, node, redisopts.KindCluster)
	}
	p.where = ""
}

// redisNode looks at one server.
func (p *patient) redisNode(ctx context.Context, c *redis.Client, kind redisopts.Kind) {
	text, err := c.Info(ctx).Result()
	unseen := Finding{
		Subject: "server", What: "the user may not use INFO: version, memory, persistence and replicas are not looked at",
		Means: "what weakens locks there stays unseen, for services too", Mend: "redis-cli ACL SETUSER USER +info",
	}
	if redis.IsPermissionError(err) {
		p.warn(unseen)
	} else if err != nil && strings.HasPrefix(err.Error(), "ERR unknown command") {
		unseen.What = "the server has no INFO: version, memory, persistence and replicas are not looked at"
		unseen.Mend = "take rename-command INFO out of redis.conf, and restart the server"
		p.warn(unseen)
	} else if err != nil {
		p.fail(Finding{Subject: "server", What: err.Error(), Means: "the server does not answer"})
		return
	}
	if info := fieldsOf(text); len(info) > 0 {
		p.redisInfo(info, kind)
	}
	p.redisForeign(ctx, c)
	p.clockBy(func() (time.Time, error) { return c.Time(ctx).Result() })
	p.redisPush(ctx, c)
}

// redisInfo judges what INFO says. That of a hosted service may lack fields, and none of them is guessed.
func (p *patient) redisInfo(info map[string]string, kind redisopts.Kind) {
	var unsaid []string
	for _, one := range []struct {
		field string
		judge func()
	}{
		{"redis_version", func() { p.redisVersion(info) }},
		{"role", func() { p.redisRole(info, kind) }},
		{"maxmemory_policy", func() { p.redisMemory(info) }},
		{"aof_enabled", func() { p.redisPersistence(info) }},
	} {
		if info[one.field] == "" {
			unsaid = append(unsaid, one.field)
			continue
		}
		one.judge()
	}
	if len(unsaid) > 0 {
		p.warn(Finding{
			Subject: "server", What: "INFO lacks " + strings.Join(unsaid, ", ") + ", so that is not looked at",
			Means: "what weakens locks there stays unseen, for services too", Mend: "look at these settings where the service is configured",
		})
	}
}

// fieldsOf reads the lines name:value of INFO.
func fieldsOf(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func (p *patient) redisVersion(info map[string]string) {
	version := info["redis_version"]
	name := "Redis"
	if info["valkey_version"] != "" {
		name, version = "Valkey", info["valkey_version"]
	}
	major, _, _ := strings.Cut(version, ".")
	p.judge(number(major) < oldestMajor, Error, Finding{
		Subject: "version", What: fmt.Sprintf("%s %s, port %s", name, version, info["tcp_port"]),
		Means: "scripts with flags are needed: no lock can be acquired", Mend: "upgrade to Redis 7.0 or later, or Valkey",
	})
}

func (p *patient) redisRole(info map[string]string, kind redisopts.Kind) {
	replicas, acks := number(info["connected_slaves"]), int64(p.settings.RedisReplicaAcks)
	mend := "check fences in the store; or use redlock://, zk:// or etcd://, which forget no lock"
	if acks == 0 {
		mend += "; WLLOCK_REDIS_REPLICA_ACKS=1 makes it rarer"
	}
	switch {
	case info["role"] != "master":
		p.fail(Finding{
			Subject: "role", What: "this is a replica, which only reads",
			Means: "no lock can be acquired", Mend: fmt.Sprintf("use the primary, %s:%s, or redis+sentinel://", info["master_host"], info["master_port"]),
		})
	case info["cluster_enabled"] == "1" && kind != redisopts.KindCluster:
		p.fail(Finding{
			Subject: "cluster", What: "the server is part of a cluster, and the URL is for a single one",
			Means: "keys of other nodes cannot be locked", Mend: "WLLOCK_BACKEND=redis+cluster://...",
		})
	case replicas < acks:
		p.fail(Finding{
			Subject: "replicas", What: fmt.Sprintf("%d, and WLLOCK_REDIS_REPLICA_ACKS is %d", replicas, acks),
			Means: "no lock can be acquired", Mend: "start more replicas, or set WLLOCK_REDIS_REPLICA_ACKS lower",
		})
	case replicas > 0:
		p.warn(Finding{
			Subject: "replicas", What: fmt.Sprintf("%d, which copy behind the primary", replicas),
			Means: "a failover can forget the last locks: then two callers hold one, and only a store that checks fences tells them apart",
			Mend:  mend,
		})
	default:
		p.fine("replicas", "none")
	}
}

func (p *patient) redisMemory(info map[string]string) {
	limit, used, policy := number(info["maxmemory"]), number(info["used_memory"]), info["maxmemory_policy"]
	const mend = "redis-cli CONFIG SET maxmemory-policy noeviction, and in redis.conf" + hosted
	switch {
	case policy != "noeviction" && limit > 0:
		p.fail(Finding{
			Subject: "eviction", What: fmt.Sprintf("maxmemory-policy %s, maxmemory %s", policy, info["maxmemory_human"]),
			Means: "when its memory is full, the server deletes locks that are held: then two callers hold one", Mend: mend,
		})
	case policy != "noeviction":
		p.warn(Finding{
			Subject: "eviction", What: fmt.Sprintf("maxmemory-policy %s, without maxmemory", policy),
			Means: "locks are deleted as soon as somebody sets maxmemory", Mend: mend,
		})
	default:
		p.fine("eviction", "maxmemory-policy noeviction")
	}
	if limit > 0 {
		p.judge(used*100 > limit*fullShare, Warning, Finding{
			Subject: "memory", What: fmt.Sprintf("%s of %s used", info["used_memory_human"], info["maxmemory_human"]),
			Means: "when it is full, no lock can be acquired", Mend: "redis-cli CONFIG SET maxmemory MORE, or a server for locks alone" + hosted,
		})
	}
}

func (p *patient) redisPersistence(info map[string]string) {
	const means = "after a restart of the server locks are free that are still held: then two callers hold one"
	const mend = "redis-cli CONFIG SET appendonly yes, and in redis.conf" + hosted + "; check fences in the store"
	failing := info["aof_enabled"] == "1" && info["aof_last_write_status"] != "ok" || info["rdb_last_bgsave_status"] == "err"
	switch {
	case failing:
		p.fail(Finding{
			Subject: "persistence", What: "the last write to disk has failed", Means: "the server may refuse all writes: no lock can be acquired then",
			Mend: "make room on the server's disk; its log says why",
		})
	case info["aof_enabled"] != "1":
		p.warn(Finding{Subject: "persistence", What: "no append-only file", Means: means, Mend: mend})
	default:
		p.fine("persistence", "append-only file")
	}
}

// clockBy compares the clocks, as far as the round trip allows.
func (p *patient) clockBy(ask func() (time.Time, error)) {
	best, difference := time.Hour, time.Duration(0)
	for range trials {
		began := time.Now()
		server, err := ask()
		if err != nil {
			return // access says so
		}
		if trip := time.Since(began); trip < best {
			best, difference = trip, server.Sub(began.Add(trip/2))
		}
	}
	p.clock(difference, best)
}

// clock judges the difference between the server's clock and this machine's.
func (p *patient) clock(difference, trip time.Duration) {
	p.judge(difference.Abs() > skewAllowed+trip, Warning, Finding{
		Subject: "clock", What: fmt.Sprintf("round trip %v, the server's clock differs by %v", trip.Round(time.Microsecond), difference.Round(time.Millisecond)),
		Means: "times that wllock shows are wrong by that; no lease depends on it, as long as no clock is set while it is held",
		Mend:  "start chrony or another NTP service on both",
	})
}

// channelsOf returns what the channels begin with on which this system's processes hear of its locks.
func (p *patient) channelsOf() string {
	match, _ := locksOf(p.settings)
	system, _, colon := strings.Cut(match, ":")
	if !colon || strings.Contains(system, "*") {
		system = "" // as for keys without a colon
	}
	return ours + system + ":"
}

// redisPush sends a message to itself, as hand-overs are.
func (p *patient) redisPush(ctx context.Context, c *redis.Client) {
	channels := p.channelsOf()
	channel := channels + "doctor" + rand.Text()
	ctx, cancel := context.WithTimeout(ctx, pushWait)
	defer cancel()
	sub := c.Subscribe(ctx, channel)
	defer func() { _ = sub.Close() }()
	_, err := sub.Receive(ctx)
	if err == nil {
		err = c.Publish(ctx, channel, "").Err()
	}
	if err == nil {
		_, err = sub.ReceiveMessage(ctx)
	}
	if err != nil {
		p.warn(Finding{
			Subject: "pub/sub", What: "a message did not arrive: " + err.Error(),
			Means: fmt.Sprintf("hand-overs between processes take up to T/6, %v, instead of one message", p.ttl/6),
			Mend:  "redis-cli ACL SETUSER USER '&" + channels + "*' +subscribe +publish",
		})
		return
	}
	p.fine("pub/sub", "messages arrive")
}

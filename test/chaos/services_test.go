package chaos

import (
	"strings"
	"testing"
	"time"

	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testproc"
)

// service is a lock service that has been started.
type service struct {
	servers  []*testproc.Server
	url      func(ways map[string]string) string // by the addresses of the proxies
	word     string                              // requests for a lock have it
	restarts bool                                // its servers may be killed, and started again
	counts   time.Duration                       // so long after a server was started again, no other may be
	own      map[string]func()                   // faults that no other service has
}

// cell is a backend, and a shape of its service.
type cell struct {
	backend, shape string
	ttl            time.Duration
	start          func(t *testing.T) *service
	forgets        bool // what it has acknowledged
	unordered      bool // it promises no order
	noPermits      bool
	noFences       bool
	localOnly      bool
}

const short, long = time.Second, 2 * time.Second // leases

var cells = []cell{
	{backend: "redis", shape: "alone", ttl: short, start: redisAlone},
	{backend: "redis", shape: "memory", ttl: short, start: redisMemory, forgets: true},
	{backend: "redis", shape: "localonly", ttl: short, start: redisAlone, localOnly: true},
}

func redisAlone(t *testing.T) *service {
	return onRedis(redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always"))
}

func redisMemory(t *testing.T) *service { return onRedis(redistest.Start(t)) }

func onRedis(s *redistest.Server) *service {
	return &service{
		servers: []*testproc.Server{s.Server}, url: func(map[string]string) string { return "redis://" + s.Addr }, word: name, restarts: true,
		own: redisFaults(s),
	}
}

// redisFaults are what else befalls Redis servers.
func redisFaults(all ...*redistest.Server) map[string]func() {
	each := func(command string) func() {
		return func() {
			for _, s := range all {
				for _, args := range strings.Split(command, ", ") {
					words := strings.Fields(args)
					of := make([]any, len(words))
					for i := range words {
						of[i] = words[i]
					}
					s.Do(of...)
				}
			}
		}
	}
	return map[string]func(){"script flush": each("SCRIPT FLUSH"), "client kill": each("CLIENT KILL TYPE pubsub, CLIENT KILL TYPE normal")}
}

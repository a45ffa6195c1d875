package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/wllock/wllock/internal/nametext"
	"github.com/wllock/wllock/internal/redisopts"
)

const backendVariable = "WLLOCK_BACKEND"

// otherNames are second names of schemes: an opener for the one opens the other, too.
var otherNames = map[string]string{"postgresql": "postgres"}

// moduleSchemes are those of wllock's backends that are modules of their own, with the package that opens each.
var moduleSchemes = map[string]string{
	"etcd": "distributed/etcdlock", "etcds": "distributed/etcdlock", "kubernetes": "distributed/kubelock", "nats": "distributed/natslock", "natss": "distributed/natslock", "zk": "distributed/zklock", "zks": "distributed/zklock",
	"postgres": "distributed/sqllock/postgres", "postgresql": "distributed/sqllock/postgres",
	"mysql": "distributed/sqllock/mysql", "sqlite": "distributed/sqllock/sqlite",
	"memcached": "distributed/memcachelock", "memcacheds": "distributed/memcachelock",
	"s3": "distributed/s3lock", "dynamodb": "distributed/dynamolock",
}

var backendAllowed = "scheme://[user:password@]host[:port][/path][?options], user and password percent-encoded; schemes: " +
	strings.Join(redisopts.Schemes(), ", ") + ", memory (memory:// locks within this process only), and what the program adds with Config.WithOpener"

// foreignScheme returns the problem of a scheme that no backend of wllock has. The program may have an opener for it, which
// FromEnv cannot see, so it is told beside other problems only.
func (c Config) foreignScheme() []Problem {
	u, err := c.Backend.Parse()
	if err != nil || moduleSchemes[u.Scheme] != "" || c.allOpeners(nil)[u.Scheme] != nil {
		return nil
	}
	return []Problem{backendProblem(nametext.Quote(u.Scheme) + " is the scheme of no backend of wllock")}
}

// unsupported returns the problem of a scheme that has no opener.
func unsupported(scheme string, openers map[string]Opener) Problem {
	fault := nametext.Quote(scheme) + " is not a backend that this program can open"
	if module := moduleSchemes[scheme]; module != "" {
		fault += ": Config.WithOpener adds it, with package " + module
	}
	p := backendProblem(fault)
	p.Allowed = strings.Join(slices.Sorted(maps.Keys(openers)), "://, ") + "://, and what the program adds with Config.WithOpener"
	return p
}

func backendProblem(fault string) Problem {
	return Problem{Variable: backendVariable, Fault: fault, Allowed: backendAllowed, Example: backendVariable + "=redis://redis:6379/0"}
}

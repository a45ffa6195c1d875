package redisopts

import (
	"maps"
	"slices"
)

// Kind is what a URL leads to.
type Kind int

const (
	KindSingle   Kind = iota // one server, over TCP
	KindUnix                 // one server, over a unix socket
	KindSentinel             // the primary that sentinels name
	KindCluster
	KindRedlock // independent servers, of which a majority decides
)

// Scheme is the meaning of a URL's scheme.
type Scheme struct {
	Kind Kind
	TLS  bool
}

var schemes = map[string]Scheme{
	"redis":           {Kind: KindSingle},
	"rediss":          {Kind: KindSingle, TLS: true},
	"unix":            {Kind: KindUnix},
	"redis+unix":      {Kind: KindUnix},
	"redis+sentinel":  {Kind: KindSentinel},
	"rediss+sentinel": {Kind: KindSentinel, TLS: true},
	"redis+cluster":   {Kind: KindCluster},
	"rediss+cluster":  {Kind: KindCluster, TLS: true},
	"redlock":         {Kind: KindRedlock},
	"redlocks":        {Kind: KindRedlock, TLS: true},
}

// SchemeOf returns the meaning of a scheme, if it is one of Redis.
func SchemeOf(name string) (Scheme, bool) {
	s, ok := schemes[name]
	return s, ok
}

// Schemes returns the names of all schemes, in order.
func Schemes() []string { return slices.Sorted(maps.Keys(schemes)) }

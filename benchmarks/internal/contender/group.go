package contender

import "fmt"

// Group is a set of contenders and scenarios that are compared with each other. Each has results of its own.
type Group uint8

const (
	OverRedis     Group = iota // locks over one Redis
	OverRedlock                // locks over a majority of five Redis servers
	OverZooKeeper              // locks over ZooKeeper
	OverEach                   // wllock alone, over each of its backends
)

// Groups returns all, in the order of a run.
func Groups() []Group { return []Group{OverRedis, OverRedlock, OverZooKeeper, OverEach} }

// String returns the group's name on the command line.
func (g Group) String() string {
	names := []string{"redis", "redlock", "zookeeper", "backends"}
	if int(g) < len(names) {
		return names[g]
	}
	return fmt.Sprintf("group %d", uint8(g))
}

// Store is what a contender keeps its locks in. Each instance of a round has the same.
type Store uint8

const (
	InRedis     Store = iota // one redis-server
	InRedlock                // five
	InZooKeeper              // one ZooKeeper server
	InMemory                 // this process
)

// of puts contenders into a group whose locks are in a store.
func of(g Group, s Store, all ...Contender) []Contender {
	for i := range all {
		all[i].Group, all[i].Store = g, s
		of(g, s, all[i].Tunings...)
	}
	return all
}

package contender

import "fmt"

// Group is a set of contenders and scenarios that are compared with each other. Each has results of its own.
type Group uint8

const (
	OverRedis     Group = iota // locks over one Redis
	OverRedlock                // locks over a majority of five Redis servers
	OverZooKeeper              // locks over ZooKeeper
	OverMySQL                  // locks in MariaDB
	OverPostgres               // locks in PostgreSQL
	OverSQLite                 // locks of one machine: a file of SQLite, or a file's lock
	OverEtcd                   // locks in etcd
	OverEach                   // wllock alone, over each of its backends
	OverBatch                  // ways to sell one product, and work under one lock: one by one and in batches
	OverPermits                // several holders at a time
)

// Groups returns all, in the order of a run.
func Groups() []Group {
	return []Group{OverRedis, OverRedlock, OverZooKeeper, OverMySQL, OverPostgres, OverSQLite, OverEtcd, OverEach, OverBatch, OverPermits}
}

// String returns the group's name on the command line.
func (g Group) String() string {
	names := []string{"redis", "redlock", "zookeeper", "mysql", "postgres", "sqlite", "etcd", "backends", "batch", "permits"}
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
	InMariaDB                // one MariaDB server
	InPostgres               // one PostgreSQL server
	InSQLite                 // a file
	InEtcd                   // one etcd server
	InMemcached              // one memcached
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

// fenced marks those that promise fences: wllock.
func fenced(all []Contender) []Contender {
	for i := range all {
		all[i].Fenced = all[i].Role == Subject
	}
	return all
}

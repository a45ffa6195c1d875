package contender

// backends are wllock over each of its backends, with tenures and without. Those with tenures are compared with those
// without.
func backends() []Contender {
	var all []Contender
	add := func(name, settings string, s Store, fenced bool, commands []string, open openBackend) {
		pair := ours(name, settings, commands, open)
		pair[0].Base = pair[1].Name
		pair[0].Fenced, pair[1].Fenced = fenced, fenced
		all = append(all, of(OverEach, s, pair...)...)
	}
	add("memory", defaults, InMemory, true, nil, inMemory)
	add("redis", defaults, InRedis, true, ourCommands, overRedis)
	add("redlock", defaults+"; no fences", InRedlock, false, ourCommands, overRedlock(""))
	add("redlock+f", "the same with quorum fences", InRedlock, true, ourCommands, overRedlock("?fences=quorum"))
	add("zookeeper", defaults, InZooKeeper, true, requests, overZooKeeper)
	add("postgres", defaults+"; hand-overs pushed by NOTIFY", InPostgres, true, statements, overPostgres)
	add("mariadb", defaults, InMariaDB, true, statements, overMariaDB)
	add("sqlite", defaults, InSQLite, true, nil, overSQLite)
	add("etcd", defaults, InEtcd, true, requests, overEtcd)
	add("memcached", defaults+"; no fences", InMemcached, false, memcachedCommands, overMemcached)
	return all
}

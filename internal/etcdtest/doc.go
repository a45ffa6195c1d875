// Package etcdtest starts real etcd servers for tests: a single one, which the tests of a package may share, and clusters of
// three. It links no client.
//
// Servers listen on free loopback ports, keep their data in memory where the system has a file system for that, and stop with
// the test. Without etcd tests are skipped, or fail if WLLOCK_REQUIRE_SERVERS=1.
package etcdtest

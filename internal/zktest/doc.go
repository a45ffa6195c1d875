// Package zktest starts real ZooKeeper servers for tests: a single one, and an ensemble of three.
//
// Servers listen on free loopback ports, live in temporary folders and stop with the test, on Linux also when the test binary
// dies. Without Java and ZooKeeper tests are skipped, or fail if WLLOCK_REQUIRE_SERVERS=1. A JVM takes a second to start, so
// the tests of a package share one server, with a chroot each.
package zktest

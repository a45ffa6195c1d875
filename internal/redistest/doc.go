// Package redistest starts real Redis servers for tests: a single one, a primary with a replica and sentinels, a cluster of
// three, one whose clock the test sets. A TCP proxy delays and loses traffic.
//
// Servers listen on free loopback ports, live in the test's temporary folder and stop with the test, on Linux also when the
// test binary dies. Without a redis-server in PATH tests are skipped, or fail if WLLOCK_REQUIRE_SERVERS=1.
package redistest

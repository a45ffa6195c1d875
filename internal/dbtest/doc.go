// Package dbtest starts real database servers for tests: PostgreSQL, also with an asynchronous standby, MariaDB and
// memcached. It links no driver: a test opens the server's URL with its own.
//
// Servers listen on free loopback ports, live in temporary folders and stop with the test. Without the programs tests are
// skipped, or fail if WLLOCK_REQUIRE_SERVERS=1. Data is stored as durably as the server does by default, so that benchmarks are
// honest: see [NoSync]. A server can have a clock of its own: see [Clock].
//
// A new database costs seconds. So a test that needs a database and no server of its own takes [SharedPostgres] or
// [SharedMariaDB], which creates a database on a server that all tests of the package share. TestMain then begins with
//
//	goleak.VerifyTestMain(dbtest.Main(m))
package dbtest

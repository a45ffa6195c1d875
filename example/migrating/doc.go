// Package migrating is what docs/migrating.md is tested with: each library beside wllock, on the same keys of a real Redis. Two
// pieces of code are to be copied: Jobs, the Locker of gocron, and Redisson, for a lock that Java services take as well. It is a module of its
// own, so that no program with wllock gets the other libraries.
package migrating

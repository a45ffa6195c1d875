// Package migrating is what docs/migrating.md is tested with: each library beside wllock, on the same keys of a real Redis or etcd, by the code
// that the page shows before and after the move. One piece of code is to be copied: Redisson, for a lock that Java services take as well. It is
// in another module than wllock, so that no program with wllock gets the other libraries.
package migrating

// Command flashsale shows what wllock is for. It sells the same pieces to the same buyers in four rounds:
//
//   - without a lock: the shop sells more than it has;
//   - one tier: every buyer asks the lock service, as with a plain distributed lock;
//   - wllock: the buyers wait in the queue of their instance, and one of them asks for all;
//   - batches: the same, and one order takes along those that wait behind it.
//
// It needs only a Go toolchain: the database is SQLite in a temporary file, the lock service is in memory, a
// millisecond away.
//
//	go run ./example/flashsale
//
// The command in full, beside this one, has the other lock services and databases, and the page in a browser; this one
// does not compile them. What both do is in internal/sale.
package main

import "github.com/wllock/wllock/example/flashsale/internal/sale"

func main() { sale.Program{}.Main() }

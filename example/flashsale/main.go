// Command flashsale shows what wllock is for: it sells the same pieces to the same buyers in four rounds, of which -help tells. It needs
// only a Go toolchain, and compiles SQLite and locks in memory. The command in full, beside this one, has the other lock services
// and databases, and the page in a browser. What both do is in internal/sale.
//
//	go run ./example/flashsale
package main

import "github.com/wllock/wllock/example/flashsale/internal/sale"

func main() { sale.Program{}.Main() }

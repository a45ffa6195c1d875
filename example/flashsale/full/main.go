// Command full is the flash sale with everything: all lock services and databases, and the page in a browser.
//
//	go run ./example/flashsale/full -backend redis://127.0.0.1:6379 -procs 4
package main

import (
	"github.com/wllock/wllock/example/flashsale/internal/sale"
	"github.com/wllock/wllock/example/flashsale/internal/stage"
	"github.com/wllock/wllock/example/flashsale/internal/stores"
)

func main() { sale.Program{Stores: stores.All, Allowed: stores.Allowed, Serve: stage.Serve}.Main() }

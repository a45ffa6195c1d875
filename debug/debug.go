// Package debug shows the locks of a process over HTTP: holders, waiters, and for how long.
//
//	admin.Handle("GET /debug/wllock", debug.Handler(locker))
//
// Mount it where only operators have access: keys may name customers and their orders, unless the Locker has wllock.WithKeyRedaction. The
// handler serves a page for browsers, a table for terminals (curl), and JSON for programs, by the Accept header or ?format=html, text or
// json. It is read-only, needs no script, and shows the 100 keys and the 50 names with the most waiters of each Locker. With ?refresh=2 a
// browser reloads it every two seconds.
//
// On a loopback address the handler accepts only localhost and addresses as the host: any other name there may belong to another site whose
// owner has made it point to this machine (DNS rebinding). A proxy on the same machine must set the Host header to one of these.
//
// In the JSON a lock has the members of [wllock.LockInfo], and a name those of [wllock.NameStats]. A Go program decodes into these types.
package debug

import (
	"net/http"
	"slices"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/opspage"
)

// Handler returns a handler that shows the locks of one or more Lockers on a page. It panics if there is none, or if one is nil.
func Handler(lockers ...*wllock.Locker) http.Handler {
	if len(lockers) == 0 || slices.Contains(lockers, nil) {
		panic("debug: Handler(nil): want a Locker")
	}
	lockers = slices.Clone(lockers)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if opspage.Admitted(w, r) {
			opspage.Answer(w, r, take(lockers))
		}
	})
}

// Package echoguard puts a wllock lock around handlers of echo (v5). It is package httpguard behind echo's types. Keys, options
// and answers are those of httpguard:
//
//	guard := echoguard.New(locker, "product", httpguard.PathValue("id"),
//		httpguard.WithCallOptions(wllock.WithWait(2*time.Second)))
//	e.POST("/orders/:id", order, guard)
//
// In the handler c.Request().Context() carries the lock (wllock.HeldFrom), and ends when it is lost. A request that does not get
// the lock is answered, and the handler does not run.
//
// echo's router finds the route and its parameters. The parameters become path values of the request, where the key function finds them.
// httpguard acquires the lock, or answers. Then the handler runs, and the lock is released. If the handler returns an error, echo answers it
// after that. But if the lock was lost, the client gets the 503 of httpguard. Place the guard behind the router, as an argument of a route or
// a group: with Use, a request without a route would need a key, too.
package echoguard

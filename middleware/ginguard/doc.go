// Package ginguard puts a wllock lock around handlers of gin. It is package httpguard behind gin's types. Keys, options and
// answers are those of httpguard:
//
//	guard := ginguard.New(locker, "product", httpguard.PathValue("id"),
//		httpguard.WithCallOptions(wllock.WithWait(2*time.Second)))
//	router.POST("/orders/:id", guard, order)
//
// In the handler c.Request.Context() carries the lock (wllock.HeldFrom), and ends when it is lost. A request that does not get the lock is
// answered and aborted.
//
// The *gin.Context carries no lock, not even with gin.Engine.ContextWithFallback: gin reuses it for other requests, and a goroutine that
// still has it would join the lock of the next one. If a call uses it for the lock of its request, such as locker.Do(c, ...), it returns an
// error at once. Pass on c.Request.Context(), and take it before you start a goroutine.
//
// gin's router finds the route and its parameters. The parameters become path values of the request, where the key function finds them.
// httpguard acquires the lock, or answers. Then the next handlers run, and the lock is released. So place the guard behind the router, as an
// argument of a route or a group: with Use of the engine, a request without a route would need a key, too.
package ginguard

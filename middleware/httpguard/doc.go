// Package httpguard puts a wllock lock around HTTP handlers.
//
//	guard := httpguard.New(locker, "product", httpguard.PathValue("id"),
//		httpguard.WithCallOptions(wllock.WithWait(2*time.Second)))
//	mux.Handle("POST /orders/{id}", guard(orderHandler))
//
// NewAll is for requests that need several locks, as a transfer between two accounts does.
//
// A request goes this way:
//
//	request ──▶ key, body ──▶ Locker: queue, backend ──▶ handler, with the lock in r.Context()
//	                │                  │                    │
//	            400, 413         429, 409, 503             503, if the lock was lost
//	                                                            and nothing was written
//
// What clients get, all but the last with a problem (RFC 9457) that contains nothing of the request:
//
//	ErrQueueFull                             429  queue-full           Retry-After
//	ErrWaitTimeout                           429  wait-timeout         Retry-After
//	too little of the server's WriteTimeout
//	  is left for the handler                429  wait-timeout         Retry-After
//	ErrHeld (wllock.NoWait)                  409  held                 Retry-After
//	ErrUnavailable                           503  backend-unavailable  Retry-After
//	ErrClosed                                503  shutting-down        Retry-After, if not admitted
//	ErrLeaseLost, ErrLockTimeMax, when
//	  nothing has been written yet           503  lease-lost
//	ErrInvalidKey, an empty key, an error
//	  of the key function                    400  invalid-key
//	a body longer than allowed               413  body-too-large
//	a mistake in the program: ErrLockOrder,
//	  ErrUpgrade, a wrong option             500  internal
//	the client has disconnected              nothing is written
//
// Beside Retry-After, which is in whole seconds, the problem has the delay as retry_after_ms if it is known.
//
// A body is read before the queue, up to 64 KiB, so that a client that sends slowly delays no other request: see WithBodyBuffer
// and WithoutBodyBuffer.
//
// The middleware never retries: a handler that has run may have done its work.
//
// # A lock that is lost
//
// r.Context() ends, with the cause wllock.ErrLeaseLost or ErrLockTimeMax. A handler that sees this should return. If it has
// written nothing, the client gets the 503. The ResponseWriter is not wrapped, so the middleware asks the writer itself whether
// something was written: those of net/http, httptest and gin can tell. Behind a wrapper with an Unwrap method, such as those of
// chi, echo and OpenTelemetry, it can usually be seen while the 503 is written. Behind any other writer the client gets the
// status 503 without a problem if nothing was written. If something was, that is sent unchanged, and net/http may log a
// superfluous WriteHeader.
package httpguard

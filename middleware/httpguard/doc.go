// Package httpguard puts a wllock lock around HTTP handlers.
//
//	guard := httpguard.New(locker, "product", httpguard.PathValue("id"),
//		httpguard.WithCallOptions(wllock.WithWait(2*time.Second)))
//	mux.Handle("POST /orders/{id}", guard(orderHandler))
//
// NewAll is for requests that need several locks, such as a transfer between two accounts.
//
// The way of a request:
//
//	request ──▶ key, body ──▶ Locker: queue, backend ──▶ handler, with the lock in r.Context()
//	                │                  │                    │
//	         400, 408, 413       429, 409, 503             503, if the lock was lost
//	                                                            and nothing was written
//
// Responses to clients, with a problem (RFC 9457) that contains nothing of the request:
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
//	a body that cannot be read               400  unreadable-body, or the status of the reader's error
//	a mistake in the program: ErrLockOrder,
//	  ErrUpgrade, a wrong option             500  internal
//	the request was canceled while it
//	  waited, as if its client disconnects   503  canceled             Retry-After
//
// Retry-After is in whole seconds. The problem has the delay in milliseconds as retry_after_ms, if it is known.
//
// The middleware reads a body before the request queues, up to 64 KiB, so that a slow client delays no other request: see WithBodyBuffer
// and WithoutBodyBuffer.
//
// The middleware never retries: a handler that has run may have done its work.
//
// # A lock that is lost
//
// r.Context() ends, with the cause wllock.ErrLeaseLost or ErrLockTimeMax. Then the handler should return. If it has written nothing, the
// client gets the 503. The middleware does not wrap the ResponseWriter. It asks the writer itself whether something was written: those of
// net/http, httptest and gin can tell. Behind a wrapper with an Unwrap method, such as those of chi, echo and OpenTelemetry, the middleware
// can usually tell while it writes the 503. Behind any other writer the client gets the status 503 without a problem if nothing was
// written. If something was written, it is sent unchanged, and net/http may log a superfluous WriteHeader.
package httpguard

// The rules of this package, which comments name where they are held. Package grpcguard keeps M1, M3, M4 and M5 as well. docs/design.md
// has the rules of all, of which H1 to H4 are about answers.
//
// M1. An empty key is an error, never one lock for all.
//
// M2. The ResponseWriter is not wrapped, so that Flusher, Hijacker and ResponseController go on working. It is wrapped only to answer
// after a lost lock, when the writer cannot say whether a response has started.
//
// M3. A panic releases the lock and goes on, http.ErrAbortHandler too, as in Do (L6, T6).
//
// M4. What a client sends is received before the queue, up to a bound. So no request waits for a client that sends slowly, and a
// waiting POST notices that its client has left (HTTP/1.1 tells only then). Under the lock only what the application asks for is
// received, and the end of the hold ends that, or, in a gRPC stream, a pause of the client.
//
// M5. A client that disconnects gives up its wait. net/http does not tell it from a request that was canceled otherwise, whose client is
// still there. So both are answered, and neither with an empty 200.
//
// M8. No request is let in whose answer can no longer be written. The wait for the lock ends when three quarters of the server's
// WriteTimeout have passed since the request came to its first guard. It is answered as one that timed out.

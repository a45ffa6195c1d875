// Package grpcguard puts a wllock lock around gRPC calls, on the server's side or the client's.
//
//	key := grpcguard.KeyFrom(func(r *shop.OrderRequest) string { return r.GetProductId() })
//	server := grpc.NewServer(grpc.UnaryInterceptor(grpcguard.UnaryServerInterceptor(locker, "product", key)))
//
// This guards every call of the server. To guard only some, put the interceptor behind a selector, for example that of
// go-grpc-middleware. The interceptors whose names end in All acquire several locks, for example for a transfer between two accounts.
//
// The statuses that callers get, with ErrorInfo (domain wllock), RetryInfo, and from a server the trailer grpc-retry-pushback-ms, which is
// the only one of these that grpc-go's retries obey:
//
//	ErrQueueFull                    RESOURCE_EXHAUSTED  LOCK_QUEUE_FULL           retry later
//	ErrWaitTimeout                  RESOURCE_EXHAUSTED  LOCK_WAIT_TIMEOUT         retry later
//	ErrHeld (wllock.NoWait)         ABORTED             LOCK_HELD                 retry later
//	ErrUnavailable                  UNAVAILABLE         LOCK_BACKEND_UNAVAILABLE  retry later
//	ErrClosed                       UNAVAILABLE         LOCK_CLOSED               retry later
//	ErrLeaseLost, ErrLockTimeMax    ABORTED             LOCK_LOST                 do not retry
//	a client that idles in a stream ABORTED             LOCK_LOST                 do not retry
//	ErrClosed, during the call      ABORTED             LOCK_LOST                 do not retry
//	ErrInvalidKey, no key           INVALID_ARGUMENT    LOCK_INVALID_KEY          do not retry
//	a mistake in the program:
//	  ErrLockOrder, ErrUpgrade, ... INTERNAL            LOCK_INTERNAL             do not retry
//	the call's own context ended    CANCELLED, DEADLINE_EXCEEDED
//
// The error that an interceptor returns also Is the error of wllock, for outer interceptors.
//
// A call whose lock was lost may have done its work. The interceptors never retry, and the pushback of LOCK_LOST forbids clients to retry.
// The answer of the handler is discarded: the caller gets LOCK_LOST. If a handler exceeds its maximum hold (ErrLockTimeMax) but succeeds
// while the lease lasts, the call has succeeded.
//
// # Streams
//
// On a server, a stream holds the lock until its handler has returned. If the key is in a message (KeyFrom), or the call has
// one request, RecvMsg acquires the lock when it has received the first message. Generated code for a call with one request
// calls RecvMsg before the handler. A stream of requests receives the others under the lock. When the hold ends, or no message has come for
// the time of WithIdleTimeout, stream.Context() ends, and RecvMsg and SendMsg return, even if they wait for the client.
//
// On a client, a stream holds the lock until gRPC has finished the stream: after an error or io.EOF from RecvMsg, when its context ends, or
// when the connection is closed. A stream that is dropped without any of these leaks in gRPC itself, and keeps its lock until
// WithLockTimeMax.
//
// The end of a stream does not wait for the backend's answer to the release, unless wllock.SyncRelease is among the
// options.
package grpcguard

// The rules of this package, which comments name where they are held. M1, M3, M4 and M5 stand in package httpguard, H2 to H4 in
// docs/design.md.
//
// M6. A stream holds its lock until its last message. Its end does not wait for the backend.

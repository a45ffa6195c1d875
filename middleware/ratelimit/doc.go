// Package ratelimit refuses requests before they queue for a lock. It limits the requests per window of each caller, each key, or any
// other identity. The queue's threshold bounds how many requests wait at once. A rate limit bounds how many of them one caller may send.
//
//	limits := ratelimit.New(ratelimit.NewLocal(), []ratelimit.Rule{
//		{Policy: ratelimit.Policy{Name: "caller", Quota: 5, Window: time.Second}, Of: callerID},
//		{Policy: ratelimit.Policy{Name: "product", Quota: 1000, Window: time.Second}, Of: httpguard.PathValue("id")},
//	})
//	mux.Handle("POST /orders/{id}", limits(guard(orderHandler)))
//
// NewLocal counts in this process, and redislimit.New counts in Redis, for all processes together. Package grpcguard/grpclimit
// does the same for gRPC.
//
// Rules are checked in order, up to the first that refuses. The rules before that one have charged the request. So put the caller first:
// the excess of one caller then costs the others nothing.
//
// A refused request gets 429 with a problem (RFC 9457) of the type quota-exceeded, and Retry-After. The problem also has the delay as
// retry_after_ms. Every response, refused or not, lists the policies in RateLimit-Policy. RateLimit says what is left of those that were
// checked, as in draft-ietf-httpapi-ratelimit-headers. If several of these middleware are chained, each adds its own.
//
// # A retry is not charged twice
//
// When a request with an Idempotency-Key (or the id that WithRequestID returns) is charged, the limiter remembers it with all its
// identities, for a minute or the policy's window, whichever is longer. The second time it passes without a charge. So the retry of a client
// whose answer was lost does not fail on a used-up quota. The third time is charged, and pays for the fourth. So a client that gives all its
// requests one key gets at most twice its quota. The rule that refuses a request neither charges nor remembers it. A request without an id
// is charged each time.
//
// # When the limiter is away
//
// Every request is admitted: the limit protects against excess load, and the queue's threshold still applies. WithFailClosed answers 503
// instead.
//
// A limiter that refuses (ErrRefused) is not away: a right is missing, or a password is wrong. Requests get 503 until an operator fixes
// that, because admitted requests would have no limit, unnoticed. redislimit.Limiter.Ping finds the cause at start.
package ratelimit

// A rule of this package and those below it, which comments name where it is held.
//
// M7. A rate limit charges a request once, and every HTTP response names all policies that applied.

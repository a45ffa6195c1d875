// Package ratelimit refuses requests before they queue for a lock: so many in a time for each caller, for each key, or
// whatever else identifies them. The queue's threshold bounds how many wait at once; a rate limit bounds how many of
// these one caller may be.
//
//	limits := ratelimit.New(ratelimit.NewLocal(), []ratelimit.Rule{
//		{Policy: ratelimit.Policy{Name: "caller", Quota: 5, Window: time.Second}, Of: callerID},
//		{Policy: ratelimit.Policy{Name: "product", Quota: 1000, Window: time.Second}, Of: httpguard.PathValue("id")},
//	})
//	mux.Handle("POST /orders/{id}", limits(guard(orderHandler)))
//
// NewLocal counts in this process; redislimit.New counts in Redis, for all processes together. Package
// grpcguard/grpclimit has the same for gRPC.
//
// Rules are looked at in their order, up to the first that refuses; those before it have been charged. So put the caller
// first: what one caller sends too much of then costs the others nothing.
//
// A request that is refused gets 429 with a problem (RFC 9457) of the type quota-exceeded, and Retry-After. Every
// response, a refusal too, tells the policies in RateLimit-Policy, and what is left of those that were looked at in
// RateLimit, as in draft-ietf-httpapi-ratelimit-headers. Several middleware in a row each add theirs.
//
// # A retry is not charged twice
//
// A request that has an Idempotency-Key (or what WithRequestID makes of it) is remembered when it is charged, together
// with all its identities, for a minute or the policy's window, whichever is longer. When it comes again, it passes
// without being charged, once: a client whose answer was lost need not fear that its retry finds the quota used up. A
// third time is charged, and pays for a fourth, so the most that a client gains by giving all its requests one key is
// twice its quota. A request that was refused has not been charged by the rule that refused it, nor is it remembered
// there. A request without an id is charged each time.
//
// # When the limiter is away
//
// A limiter that cannot be asked lets everybody in: it is a fence against crowds, and the queue's threshold still
// stands. WithFailClosed answers 503 instead.
package ratelimit

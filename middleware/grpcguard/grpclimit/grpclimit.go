// Package grpclimit is package ratelimit for gRPC servers.
//
//	limits := grpclimit.UnaryServerInterceptor(limiter, []grpclimit.Rule{{
//		Policy: ratelimit.Policy{Name: "caller", Quota: 5, Window: time.Second},
//		Of:     grpcguard.Metadata("caller-id"),
//	}})
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limits, guard))
//
// A refused call gets RESOURCE_EXHAUSTED with ErrorInfo (reason RATE_LIMITED, domain wllock), RetryInfo, and the trailer
// grpc-retry-pushback-ms. A retry is recognized by the metadata idempotency-key.
package grpclimit

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock/middleware/grpcguard/internal/rpcstatus"
	"github.com/wllock/wllock/middleware/ratelimit"
)

// Rule is a policy and the identity it applies to.
type Rule struct {
	Policy ratelimit.Policy // its name is different in each rule
	// Of returns the identity that a call is charged to. The key functions of grpcguard can be used. A stream has no request yet, so req is nil.
	// If Of returns an error or an empty identity, the call is refused with INVALID_ARGUMENT.
	Of func(ctx context.Context, fullMethod string, req any) (string, error)
}

// Option configures an interceptor.
type Option func(*limits)

// WithRequestID sets f, which returns the id that a call shares with its retries (default: the metadata idempotency-key), or "" for none.
func WithRequestID(f func(ctx context.Context) string) Option {
	if f == nil {
		panic("grpclimit: WithRequestID(nil): want a function")
	}
	return func(l *limits) { l.requestID = f }
}

// WithFailClosed refuses calls with UNAVAILABLE also while the limiter is away, and not only while it refuses (ratelimit.ErrRefused).
func WithFailClosed() Option { return func(l *limits) { l.failClosed = true } }

type limits struct {
	limiter    ratelimit.Limiter
	rules      []Rule
	requestID  func(context.Context) string
	failClosed bool
}

// UnaryServerInterceptor admits a call if all rules allow it. Put it before the interceptor of grpcguard. It panics on invalid arguments.
func UnaryServerInterceptor(limiter ratelimit.Limiter, rules []Rule, opts ...Option) grpc.UnaryServerInterceptor {
	l := newLimits(limiter, rules, opts)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if refused := l.take(ctx, info.FullMethod, req); refused != nil {
			_ = grpc.SetTrailer(ctx, refused.Trailer()) // fails only outside a server
			return nil, refused
		}
		return handler(ctx, req)
	}
}

// StreamServerInterceptor is UnaryServerInterceptor for streams. It charges each stream once, when the stream begins.
func StreamServerInterceptor(limiter ratelimit.Limiter, rules []Rule, opts ...Option) grpc.StreamServerInterceptor {
	l := newLimits(limiter, rules, opts)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if refused := l.take(ss.Context(), info.FullMethod, nil); refused != nil {
			ss.SetTrailer(refused.Trailer())
			return refused
		}
		return handler(srv, ss)
	}
}

func newLimits(limiter ratelimit.Limiter, rules []Rule, opts []Option) *limits {
	if limiter == nil {
		panic("grpclimit: an interceptor needs a Limiter")
	}
	if len(rules) == 0 {
		panic("grpclimit: no rules: nothing would be limited")
	}
	names := map[string]bool{}
	for _, r := range rules {
		if err := r.Policy.Check(); err != nil {
			panic(err.Error())
		}
		if names[r.Policy.Name] {
			panic(fmt.Sprintf("grpclimit: two rules have a policy %s: want a name for each", r.Policy.Name))
		}
		names[r.Policy.Name] = true
		if r.Of == nil {
			panic(fmt.Sprintf("grpclimit: policy %s: Of is nil: want a function", r.Policy.Name))
		}
	}
	l := &limits{limiter: limiter, rules: rules, requestID: idempotencyKey}
	for _, o := range opts {
		if o == nil {
			panic("grpclimit: an option of an interceptor is nil")
		}
		o(l)
	}
	return l
}

func idempotencyKey(ctx context.Context) string {
	if values := metadata.ValueFromIncomingContext(ctx, "idempotency-key"); len(values) > 0 {
		return values[0]
	}
	return ""
}

// take charges a call and returns nil if it is admitted.
func (l *limits) take(ctx context.Context, method string, req any) *rpcstatus.Refusal {
	charges := make([]ratelimit.Charge, len(l.rules))
	for i, rule := range l.rules {
		id, err := rule.Of(ctx, method, req)
		if err != nil || id == "" {
			return rpcstatus.New(codes.InvalidArgument, "LOCK_INVALID_KEY",
				"the identity of the call is missing or malformed", rpcstatus.Never, err)
		}
		charges[i] = ratelimit.Charge{Policy: rule.Policy, Identity: id}
	}
	v, err := ratelimit.Take(ctx, l.limiter, charges, l.requestID(ctx)) // rule M7
	if err != nil && (l.failClosed || errors.Is(err, ratelimit.ErrRefused)) {
		if end := ctx.Err(); end != nil { // a call that has ended need not be retried
			return rpcstatus.Plain(status.FromContextError(end).Code(), "the call ended before the limit service responded", err)
		}
		return rpcstatus.New(codes.Unavailable, "LOCK_BACKEND_UNAVAILABLE", "the rate limit service is unavailable", rpcstatus.Jitter(0), err)
	}
	if policy, after := v.Refused(); policy != nil {
		return rpcstatus.New(codes.ResourceExhausted, "RATE_LIMITED", "rate limit exceeded", rpcstatus.Jitter(after), nil)
	}
	return nil
}

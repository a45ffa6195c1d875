// Package grpclimit is package ratelimit for gRPC servers.
//
//	limits := grpclimit.UnaryServerInterceptor(limiter, []grpclimit.Rule{{
//		Policy: ratelimit.Policy{Name: "caller", Quota: 5, Window: time.Second},
//		Of:     grpcguard.Metadata("caller-id"),
//	}})
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limits, guard))
//
// A call that is refused gets RESOURCE_EXHAUSTED with ErrorInfo (reason RATE_LIMITED, domain wllock), RetryInfo, and the
// trailer grpc-retry-pushback-ms. A retry is recognised by the metadata idempotency-key.
package grpclimit

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock/middleware/grpcguard/internal/rpcstatus"
	"github.com/wllock/wllock/middleware/ratelimit"
)

// Rule is a policy, and whom or what it is for.
type Rule struct {
	Policy ratelimit.Policy
	// Of returns the identity that a call is charged to. The key functions of grpcguard will do; of a stream there is no
	// request yet, so req is nil. An error, or an empty identity, refuses the call with INVALID_ARGUMENT.
	Of func(ctx context.Context, fullMethod string, req any) (string, error)
}

// Option changes an interceptor.
type Option func(*limits)

// WithRequestID sets what a call has in common with its retries [the metadata idempotency-key]. "": it has none.
func WithRequestID(f func(ctx context.Context) string) Option {
	return func(l *limits) { l.requestID = f }
}

// WithFailClosed refuses calls with UNAVAILABLE while the limiter cannot be asked.
func WithFailClosed() Option { return func(l *limits) { l.failClosed = true } }

type limits struct {
	limiter    ratelimit.Limiter
	rules      []Rule
	requestID  func(context.Context) string
	failClosed bool
}

// UnaryServerInterceptor lets those calls through that all rules allow. Put it before that of grpcguard. It panics when
// something is wrong with its arguments.
func UnaryServerInterceptor(limiter ratelimit.Limiter, rules []Rule, opts ...Option) grpc.UnaryServerInterceptor {
	l := newLimits(limiter, rules, opts)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if refused := l.take(ctx, info.FullMethod, req); refused != nil {
			_ = grpc.SetTrailer(ctx, refused.Trailer()) // fails only outside of a server
			return nil, refused
		}
		return handler(ctx, req)
	}
}

// StreamServerInterceptor is UnaryServerInterceptor for streams: each is charged once, when it begins.
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
		panic("grpclimit: an interceptor wants a Limiter")
	}
	for _, r := range rules {
		if err := r.Policy.Check(); err != nil || r.Of == nil {
			panic(fmt.Sprintf("grpclimit: an interceptor wants rules with a policy and a function: %v", err))
		}
	}
	l := &limits{limiter: limiter, rules: rules, requestID: idempotencyKey}
	for _, o := range opts {
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

// take charges a call. nil: it may go on.
func (l *limits) take(ctx context.Context, method string, req any) *rpcstatus.Refusal {
	charges := make([]ratelimit.Charge, len(l.rules))
	for i, rule := range l.rules {
		id, err := rule.Of(ctx, method, req)
		if err != nil || id == "" {
			return rpcstatus.New(codes.InvalidArgument, "LOCK_INVALID_KEY",
				"who calls, or what about, is missing or malformed", rpcstatus.Never, err)
		}
		charges[i] = ratelimit.Charge{Policy: rule.Policy, Identity: id}
	}
	v, err := ratelimit.Take(ctx, l.limiter, charges, l.requestID(ctx))
	if err != nil && l.failClosed {
		if end := ctx.Err(); end != nil { // who has left, or whose time is over, need not come again
			return rpcstatus.Plain(status.FromContextError(end).Code(), "the call ended before the limit service had answered", err)
		}
		return rpcstatus.New(codes.Unavailable, "LOCK_BACKEND_UNAVAILABLE", "the limit service does not answer", rpcstatus.Jitter(0), err)
	}
	if policy, after := v.Refused(); policy != nil {
		return rpcstatus.New(codes.ResourceExhausted, "RATE_LIMITED", "more calls than are allowed", rpcstatus.Jitter(after), nil)
	}
	return nil
}

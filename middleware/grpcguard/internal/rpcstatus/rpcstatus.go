// Package rpcstatus makes the status of a refusal in gRPC, the same way in all interceptors.
package rpcstatus

import (
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Domain is the domain of the reasons in ErrorInfo.
const Domain = "wllock"

// Pushback is the key of the trailer that tells clients when to retry, the only thing that grpc-go's retries obey.
const Pushback = "grpc-retry-pushback-ms"

// Never, as a delay, forbids a retry. Unsaid leaves it to the client.
const (
	Never  time.Duration = -1
	Unsaid time.Duration = -2
)

// minDelay is the shortest delay: less would be a burst.
const minDelay = 10 * time.Millisecond

// Jitter adds a random part of up to half of the delay, so that clients refused together do not return together.
func Jitter(d time.Duration) time.Duration {
	d = max(d, minDelay)
	return d + rand.N(d/2)
}

// Refusal is an error with the status it is sent with. It wraps its cause.
type Refusal struct {
	status *status.Status
	cause  error
	after  time.Duration
}

// New returns a Refusal. Clients see message, reason and delay, and nothing of the cause.
func New(code codes.Code, reason, message string, after time.Duration, cause error) *Refusal {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason, Domain: Domain}}
	if after > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	}
	s := status.New(code, message)
	if full, err := s.WithDetails(details...); err == nil { // fails only for OK
		s = full
	}
	return &Refusal{status: s, cause: cause, after: after}
}

// Plain returns a Refusal without details: clients see the code and the message.
func Plain(code codes.Code, message string, cause error) *Refusal {
	return &Refusal{status: status.New(code, message), cause: cause, after: Unsaid}
}

// Error implements error, without the text of the cause, which contains part of the key.
func (r *Refusal) Error() string { return r.status.Err().Error() } // rule H3

// GRPCStatus is how package status finds the status.
func (r *Refusal) GRPCStatus() *status.Status { return r.status }

// Unwrap gives the cause to errors.Is and errors.As.
func (r *Refusal) Unwrap() error { return r.cause }

// Trailer returns what a server sends with the status.
func (r *Refusal) Trailer() metadata.MD {
	if r.after == Unsaid {
		return nil
	}
	ms := int64(-1)
	if r.after >= 0 {
		ms = int64((r.after + time.Millisecond - 1) / time.Millisecond)
	}
	return metadata.Pairs(Pushback, strconv.FormatInt(ms, 10))
}

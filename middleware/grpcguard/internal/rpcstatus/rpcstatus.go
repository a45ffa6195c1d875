// Package rpcstatus makes the status of a refusal in gRPC, alike in all interceptors.
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

// Domain is that of the reasons in ErrorInfo.
const Domain = "wllock"

// Pushback is the key of the trailer that tells clients when to try again: the only thing that grpc-go's retries obey.
const Pushback = "grpc-retry-pushback-ms"

// Never, as the delay of a retry, forbids it; Unsaid leaves it to the client.
const (
	Never  time.Duration = -1
	Unsaid time.Duration = -2
)

// minDelay is the least that is told to wait: less than that is a burst.
const minDelay = 10 * time.Millisecond

// Jitter adds up to half of a delay by chance, so that those who were refused together do not come back together.
func Jitter(d time.Duration) time.Duration {
	d = max(d, minDelay)
	return d + rand.N(d/2)
}

// Refusal is an error that has a status, with which it is sent, and wraps what it was made of.
type Refusal struct {
	status *status.Status
	cause  error
	after  time.Duration
}

// New returns a Refusal. Message, reason and delay are what clients see; of the cause they see nothing.
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

// Plain returns a Refusal without details, of which clients make nothing but the code.
func Plain(code codes.Code, message string, cause error) *Refusal {
	return &Refusal{status: status.New(code, message), cause: cause, after: Unsaid}
}

// Error implements error, without the text of the cause: that has a part of the key.
func (r *Refusal) Error() string { return r.status.Err().Error() }

// GRPCStatus is how package status finds the status.
func (r *Refusal) GRPCStatus() *status.Status { return r.status }

// Unwrap gives the cause to errors.Is and errors.As.
func (r *Refusal) Unwrap() error { return r.cause }

// Trailer is what a server sends along.
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

package grpcguard

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/wllock/wllock"
)

// KeyFunc makes the key of a lock from a call. If it returns an error or an empty key, the call is refused with INVALID_ARGUMENT.
//
// A stream has no request at first, so req is nil. A function that needs it returns ErrNoMessage and is called again with the first message.
type KeyFunc = func(ctx context.Context, fullMethod string, req any) (string, error)

// KeysFunc makes the locks of a call for the interceptors of several locks. If it returns an error, an empty key, no key, or more than 64
// different ones, the call is refused with INVALID_ARGUMENT. A name that no lock can have is a mistake in the program, INTERNAL. For a stream it
// is called like a KeyFunc.
type KeysFunc = func(ctx context.Context, fullMethod string, req any) ([]wllock.Resource, error)

// ErrNoMessage is returned by a key function that needs a request and got none.
var ErrNoMessage = errors.New("grpcguard: the key is in a message, and none has been received yet")

// KeyFrom returns a KeyFunc that takes the key from the request, or from the first message of a stream.
func KeyFrom[T proto.Message](key func(T) string) KeyFunc {
	if key == nil {
		panic("grpcguard: KeyFrom(nil): want a function")
	}
	return from(key)
}

// KeysFrom returns a KeysFunc that takes the locks from the request, or from the first message of a stream.
func KeysFrom[T proto.Message](keys func(T) []wllock.Resource) KeysFunc {
	if keys == nil {
		panic("grpcguard: KeysFrom(nil): want a function")
	}
	return from(keys)
}

func from[T proto.Message, K any](take func(T) K) func(context.Context, string, any) (K, error) {
	return func(_ context.Context, _ string, req any) (none K, err error) {
		if req == nil {
			return none, ErrNoMessage
		}
		m, ok := req.(T)
		if !ok {
			return none, fmt.Errorf("the request is a %T", req)
		}
		return take(m), nil
	}
}

// Metadata returns a KeyFunc that takes the key from the metadata sent with the call, where it must occur exactly once. It works on both sides.
func Metadata(name string) KeyFunc {
	return func(ctx context.Context, _ string, _ any) (string, error) {
		switch values := metadata.ValueFromIncomingContext(ctx, name); len(values) {
		case 0:
			return "", fmt.Errorf("no %s in the metadata", name)
		case 1:
			return values[0], nil
		default: // the lock might be for one and the work on another
			return "", fmt.Errorf("%s occurs %d times in the metadata", name, len(values))
		}
	}
}

// asServer makes the context of an outgoing call what its server will see, for key functions that read metadata: in a
// server's handler, the context has the metadata of the incoming call.
func asServer(ctx context.Context) context.Context {
	out, _ := metadata.FromOutgoingContext(ctx)
	return metadata.NewIncomingContext(ctx, out)
}

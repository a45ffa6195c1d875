package grpcguard

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// KeyFunc makes the key of a lock from a call. An error, or an empty key, refuses the call with INVALID_ARGUMENT.
//
// Of a stream there is no request at first, and req is nil. A function that needs it returns ErrNoMessage, and is called
// again with the first message.
type KeyFunc = func(ctx context.Context, fullMethod string, req any) (string, error)

// ErrNoMessage is what a key function returns that was given no request and needs one.
var ErrNoMessage = errors.New("grpcguard: the key is in a message, and there is none yet")

// KeyFrom takes the key from the request, or the first message of a stream.
func KeyFrom[T proto.Message](key func(T) string) KeyFunc {
	return func(_ context.Context, _ string, req any) (string, error) {
		if req == nil {
			return "", ErrNoMessage
		}
		m, ok := req.(T)
		if !ok {
			return "", fmt.Errorf("the request is a %T", req)
		}
		return key(m), nil
	}
}

// Metadata takes the key from the metadata that is sent with the call, where it may be once. It works on both sides.
func Metadata(name string) KeyFunc {
	return func(ctx context.Context, _ string, _ any) (string, error) {
		switch values := metadata.ValueFromIncomingContext(ctx, name); len(values) {
		case 0:
			return "", fmt.Errorf("no %s in the metadata", name)
		case 1:
			return values[0], nil
		default: // the lock would be for one, the work perhaps on the other
			return "", fmt.Errorf("%d times %s in the metadata", len(values), name)
		}
	}
}

// asServer makes the context of a call that goes out what its server will see, for key functions that look at the
// metadata: in a server's handler the context has those of the call that came in.
func asServer(ctx context.Context) context.Context {
	out, _ := metadata.FromOutgoingContext(ctx)
	return metadata.NewIncomingContext(ctx, out)
}

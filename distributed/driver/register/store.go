package register

import (
	"context"
	"time"

	"github.com/wllock/wllock/internal/keyless"
)

// Store keeps one small document per key, and changes it only from the version that was read. Its methods are called concurrently. A Get
// sees every Put that was answered before it began. They return by themselves after a while, if the service is silent: ctx may not end.
//
// Their errors match distributed.ErrUnavailable. ErrConflict, distributed.ErrRefused and distributed.ErrUnreached say that nothing was
// changed. After any other it may have been, or may still be.
type Store interface {
	// Get reads a document. One that is absent is the zero Document.
	Get(ctx context.Context, key string) (Document, error)
	// GetMany reads documents, by their keys, in one exchange if it can. One that is missing was not read, if there is an error, or is absent.
	GetMany(ctx context.Context, keys []string) (map[string]Document, error)
	// Put writes a document over the version from. Over 0 it writes only if the document is absent. The Store may forget it after keep.
	Put(ctx context.Context, key string, data []byte, from uint64, keep time.Duration) error
	// Delete removes a document of the version from.
	Delete(ctx context.Context, key string, from uint64) error
}

// Spread is an optional ability of a Store whose keys lie on several servers, of which one may be silent alone.
type Spread interface {
	Store
	// Server names the server that has a key. GetMany is asked for keys of one server only, and no request waits for another server.
	Server(key string) string
}

// Document is what a Store keeps under a key. No two contents of a key have the same Version.
type Document struct {
	Data    []byte
	Version uint64 // 0: there is none
}

// ErrConflict answers a Put or Delete from a version that the document has no more.
var ErrConflict = keyless.Errorf("the document has changed")

// ErrBusy stands beside distributed.ErrRefused: nothing was done since the service takes no more requests for now. A request for a lock is
// repeated for the claim window.
var ErrBusy = keyless.Errorf("the service takes no more for now")

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
//
// What else a service can do are optional abilities: Deleter, Many, Watcher, Lister, Numberer, Pinger, Spread.
type Store interface {
	// Get reads a document. One that is absent is the zero Document.
	Get(ctx context.Context, key string) (Document, error)
	// Put writes a document over the version from, and returns its version, or "" if it does not learn that. Over "" it writes only if the
	// document is absent. The Store may forget it after keep.
	Put(ctx context.Context, key string, data []byte, from Version, keep time.Duration) (Version, error)
}

// Version names a content of a key. No two contents have the same. "": the document is absent.
type Version string

// Document is what a Store keeps under a key.
type Document struct {
	Data    []byte
	Version Version
}

// Deleter is a Store that removes documents. Without it those of free locks stay.
type Deleter interface {
	Store
	// Delete removes a document of the version from.
	Delete(ctx context.Context, key string, from Version) error
}

// Many is a Store that reads several documents in one exchange. A process that holds many locks reads them often.
type Many interface {
	Store
	// GetMany reads documents, by their keys. One that is missing was not read, if there is an error, or is absent.
	GetMany(ctx context.Context, keys []string) (map[string]Document, error)
}

// Watcher is a Store that tells of changes. Without it waiters, and holders that others may wait for, read again and again.
type Watcher interface {
	Store
	// Watch calls changed with the document as it is, and then after each change, until ctx ends or the watch breaks. It may leave out all
	// but the latest change. One call of changed is made at a time, and none when it has returned. There is a watch for each lock that is waited for, or held for long.
	Watch(ctx context.Context, key string, changed func(Document)) error
}

// Lister is a Store whose keys can be listed, for wllock ls and top.
type Lister interface {
	Store
	// List returns a page of the documents whose keys begin with prefix: see distributed.Inspector.
	List(ctx context.Context, prefix, cursor string, limit int) (page []Keyed, next string, err error)
}

// Keyed is a Document with its key.
type Keyed struct {
	Key string
	Document
}

// Numberer is a Store that numbers its writes. So the document of a free lock can be removed: the fences of the next go on from its number.
// Put returns all versions.
type Numberer interface {
	Deleter
	// Number returns the number of a version: from 1, and larger than those of all writes of the key before, also of removed documents.
	Number(v Version) (int64, error)
}

// Pinger is a Store with a Ping of its own. Without it Ping locks and releases a random key, whose document may stay.
type Pinger interface {
	Store
	// Ping returns nil if the service can do its work. It is bounded as all exchanges.
	Ping(ctx context.Context) error
}

// Spread is a Store whose keys lie on several servers, of which one may be silent alone.
type Spread interface {
	Store
	// Server names the server that has a key. GetMany is asked for keys of one server only, and no request waits for another server.
	Server(key string) string
}

// ErrConflict answers a Put or Delete from a version that the document has no more.
var ErrConflict = keyless.Errorf("the document has changed")

// ErrBusy stands beside distributed.ErrRefused: nothing was done since the service takes no more requests for now. A request for a lock is
// repeated for the claim window.
var ErrBusy = keyless.Errorf("the service takes no more for now")

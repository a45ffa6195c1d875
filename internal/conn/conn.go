// Package conn is the lowest storey of the backends on Redis: connections to a server, pipelines, timeouts, sentinels,
// credentials, and the sorting of errors. It runs scripts and passes on messages, and knows nothing of locks.
//
//	Pipelined ─▶ goRedis ─┬─▶ scripts: a call alone, or several in one pipeline
//	                      └─▶ one subscription, with a watchdog that replaces a silent connection
package conn

import (
	"context"
	"time"
)

// Config is what the storey above decides about connections.
type Config struct {
	Username     string // takes precedence over the client's, "" if none
	PasswordFile string // takes precedence over the client's, "" if none
	// PrefixOf is that of the channel and the helper keys of a key: an ACL rule for it is proposed when the server refuses one.
	PrefixOf   func(key string) string
	ClientName string // of connections, unless the caller's client names its own, "" if none
	// Pipelines is how many exchanges of several calls, and of calls that go ahead, may be under way with one server at once.
	Pipelines int
	// Acks is what Acked calls wait for.
	Acks Acks
}

// Transport is all that the protocol needs of a server: scripts go in, replies and messages come out. New and Open return the
// one for real servers. A simulated server is another.
type Transport interface {
	// Do runs the calls in as few exchanges as it can and fills in each one's reply or error. It returns when all are known or
	// ctx has ended. A call without a reply may have run.
	Do(ctx context.Context, calls ...*Call)
	// Node names the server that has the key, "" if there is only one, or nothing is known.
	Node(ctx context.Context, key string) string
	// Elsewhere returns a hash tag that another server has than the one that has before ("": none), if there are
	// several.
	Elsewhere(ctx context.Context, before string) string
	// Slots is how many exchanges of single calls may be under way with one node before calls share one: MaxSlots, or less. Acked calls have
	// slots of their own.
	Slots() (callers, acked int)
	// SetupTrips is how many round trips it takes to set up a connection.
	SetupTrips() int
	// Ping measures one exchange with the server that has the tag.
	Ping(ctx context.Context, tag string) (time.Duration, error)
	// About asks that server what it is.
	About(ctx context.Context, tag string) (Info, error)
	// Load has that server store scripts, so that the first call of each takes no more round trips than others. It need
	// not succeed.
	Load(ctx context.Context, tag string, scripts ...*Script)
	// Scan returns a page of the keys that begin with a prefix and are no helper keys, and the cursor of the next one. "" says that it was
	// the last, and as a cursor begins. It looks at about limit keys.
	Scan(ctx context.Context, cursor, prefix string, limit int) (keys []string, next string, err error)
	// ListenTo subscribes to channels, over one connection, and passes on their messages until ctx ends. It makes none before the first
	// channel is there, and reconnects by itself. interval says how often the connection is checked: after two intervals without a sign of
	// life it is replaced.
	ListenTo(ctx context.Context, channels *Channels, interval func() time.Duration, l ChannelListener)
	Close() error
}

// Info is what matters of a server's INFO.
type Info struct {
	Version   string
	Policy    string // maxmemory-policy
	MaxMemory string // "0" is no limit
	Single    bool   // not a cluster, so PUBLISH counts all receivers
}

const (
	// MaxBatch bounds the calls of one pipeline: the server answers no other client meanwhile.
	MaxBatch = 128
	// LongestTry bounds one exchange of scripts: in any network a reply that takes longer is not worth waiting for.
	LongestTry = time.Second
)

// within is a context that ends at a given time, or with its parent. It only states its deadline, which is all
// that a connection needs, so there is no timer to pay for.
type within struct {
	context.Context
	end time.Time
}

// Within returns a context whose deadline is d from now, or the parent's if that is earlier.
func Within(ctx context.Context, d time.Duration) context.Context {
	end := time.Now().Add(d)
	if parent, ok := ctx.Deadline(); ok && parent.Before(end) {
		return ctx
	}
	return within{ctx, end}
}

// Deadline implements context.Context.
func (w within) Deadline() (time.Time, bool) { return w.end, true }

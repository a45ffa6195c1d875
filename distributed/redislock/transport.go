package redislock

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// transport is all that the protocol needs of a server: scripts go in, answers and notices come out. goRedis is the
// one for real servers; a simulated server is another.
type transport interface {
	// do runs the calls in as few exchanges as it can and fills in each one's answer or error. It returns when all
	// are known or ctx has ended; a call without an answer may have run.
	do(ctx context.Context, calls ...*call)
	// node names the server that has the key; "" if there is but one, or nothing is known.
	node(ctx context.Context, key string) string
	// elsewhere returns a hash tag of another server than the one before has, "" for none, if there are several.
	elsewhere(ctx context.Context, before string) string
	// ping measures one exchange with the server that has the tag.
	ping(ctx context.Context, tag string) (time.Duration, error)
	// about asks that server what it is.
	about(ctx context.Context, tag string) (serverInfo, error)
	// listen subscribes to one channel and passes on what comes, until ctx ends. It reconnects by itself; interval
	// tells how often the connection is to be tried: after two of them without a sign of life it is replaced.
	listen(ctx context.Context, channel string, interval func() time.Duration, ears ears)
	close() error
}

// ears is who listens. Calls come one after the other and must not block.
type ears interface {
	heard(notice string)
	subscribed()        // from now on notices arrive; earlier ones may be lost
	deafened(err error) // the subscription failed or broke
}

// call is one script to run.
type call struct {
	script *script
	// wire is the command as it is sent: EVALSHA, digest, number of keys, keys, arguments. Nobody changes it: a call
	// that is asked again may still be under way. What is the same for all calls of an attempt is put into
	// interfaces only once.
	wire []any

	tries int    // how often it was sent
	reply string // the script's answer: words, with a blank between them
	err   error  // nil if it has answered
}

// wireHead is the number of elements before the keys.
const wireHead = 3

// queueKey is the queue's place among the keys.
const queueKey = 2

// Where ARGV 1 and ARGV 6 stand, behind six keys.
const (
	tokenAt    = wireHead + 6
	settingsAt = tokenAt + 5
)

func newCall(s *script, keys []string, args ...any) *call {
	w := append(make([]any, 0, wireHead+len(keys)+len(args)), "evalsha", s.digest, len(keys))
	for _, k := range keys {
		w = append(w, k)
	}
	return &call{script: s, wire: append(w, args...)}
}

// key is one of the keys that the call is about; which does not matter, for they are on one node.
func (c *call) key() string {
	switch k := c.wire[wireHead].(type) {
	case *string:
		return *k
	case string:
		return k
	default: // no key
		return ""
	}
}

// serverInfo is what matters of a server's INFO.
type serverInfo struct {
	version string
	policy  string // maxmemory-policy
	memory  string // maxmemory; "0" is no limit
	single  bool   // no cluster, so that PUBLISH counts all receivers
}

// word returns the reply's i-th word, "" if there are fewer.
func (c *call) word(i int) string {
	word, rest, _ := strings.Cut(c.reply, " ")
	for ; i > 0; i-- {
		word, rest, _ = strings.Cut(rest, " ")
	}
	return word
}

// number returns the reply's i-th word as a number.
func (c *call) number(i int) int64 {
	n, _ := strconv.ParseInt(c.word(i), 10, 64)
	return n
}

// by is a context that ends at a moment, if its parent does not end before. Only the deadline is told, which is all
// that a connection needs; there is no timer to pay for.
type by struct {
	context.Context
	at time.Time
}

// within returns a context whose deadline is d from now, or the parent's if that is earlier.
func within(ctx context.Context, d time.Duration) context.Context {
	at := time.Now().Add(d)
	if parent, ok := ctx.Deadline(); ok && parent.Before(at) {
		return ctx
	}
	return by{ctx, at}
}

// Deadline implements context.Context.
func (b by) Deadline() (time.Time, bool) { return b.at, true }

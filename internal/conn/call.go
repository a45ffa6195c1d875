package conn

import (
	"crypto/sha1" //nolint:gosec // what EVALSHA names scripts by, not a protection
	"embed"
	"encoding/hex"
	"strings"
	"time"
)

// Script is one step of a protocol as the server runs it.
type Script struct {
	Name, Text, SHA string

	digest any // SHA, put into an interface only once
}

// NewScript returns a script of that text.
func NewScript(name, text string) *Script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	sha := hex.EncodeToString(sum[:])
	return &Script{Name: name, Text: text, SHA: sha, digest: sha}
}

// includeMark begins the line of a script that is replaced by the shared parts it names.
const includeMark = "-- include: "

// ReadScript returns a script of the folder lua, with the parts that it includes.
func ReadScript(sources embed.FS, name string) *Script {
	source := func(name string) string {
		text, err := sources.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // embedded at build time
		}
		return string(text)
	}
	text := source(name)
	for {
		before, rest, more := strings.Cut(text, includeMark)
		if !more {
			return NewScript(name, text)
		}
		names, body, _ := strings.Cut(rest, "\n")
		for part := range strings.FieldsSeq(names) {
			before += source(part)
		}
		text = before + body
	}
}

// HeadLen is the number of a call's arguments before its keys.
const HeadLen = 3

// Head fills in the arguments before the keys.
func (s *Script) Head(args []any, keys int) { args[0], args[1], args[2] = "evalsha", s.digest, keys }

// Call is one script to run.
type Call struct {
	Script *Script
	// Args is the command as it is sent: EVALSHA, digest, number of keys, keys, arguments. It is not changed: a call that is
	// repeated may still be under way.
	Args []any

	// Ahead, of a lone call: it shares no exchange with those of callers, and waits for none of theirs. How many such calls are
	// under way is Config.Pipelines' to count.
	Ahead bool
	// Acked has the call answered when Config.Acks is met. Else its error is one that is Unacked, though it was carried out. All calls of one Do
	// are Acked, and for one node, or none is.
	Acked bool

	Tries int       // how often it was sent, counted by its caller
	Sent  time.Time // when it was sent last, or went to make a connection first
	Reply string    // the script's reply
	Err   error     // nil if it has replied

	alone [1]*Call
}

// Alone returns what Do takes for this call, without an allocation for each exchange.
func (c *Call) Alone() []*Call {
	c.alone[0] = c
	return c.alone[:]
}

// NewCall returns a call of a script with these keys and arguments.
func NewCall(s *Script, keys []string, args ...any) *Call {
	all := make([]any, HeadLen, HeadLen+len(keys)+len(args))
	s.Head(all, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	return &Call{Script: s, Args: append(all, args...)}
}

// withText returns Args for a server that does not know the script yet, and stores it then.
func (c *Call) withText() []any { return append([]any{"eval", c.Script.Text}, c.Args[2:]...) }

// Key returns one of the call's keys. Which one does not matter, because they are on one node.
func (c *Call) Key() string {
	if len(c.Args) <= HeadLen { // no key, and no argument
		return ""
	}
	switch k := c.Args[HeadLen].(type) {
	case *string:
		return *k
	case string:
		return k
	default: // no key
		return ""
	}
}

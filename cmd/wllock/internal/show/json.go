package show

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/nametext"
)

// Lock is an Inspection for programs. Fences are texts, because many JSON readers round numbers of this size. What is not known is
// left out.
type Lock struct {
	Key         string    `json:"key"`
	Held        bool      `json:"held"`
	Mode        string    `json:"mode,omitempty"`
	Foreign     bool      `json:"foreign,omitempty"` // held by a client that is not wllock
	Since       time.Time `json:"since,omitzero"`
	Fence       string    `json:"fence,omitempty"`
	Holders     []Person  `json:"holders"`
	MoreHolders int       `json:"more_holders,omitempty"`
	Waiting     int       `json:"waiting"`
	Waiters     []Person  `json:"waiters,omitempty"` // the first in the queue
	Broken      *Break    `json:"broken,omitempty"`

	LastAcquired time.Time `json:"last_acquired,omitzero"` // of a free lock
	LastRun      *Run      `json:"last_run,omitempty"`
	LastSuccess  *Run      `json:"last_success,omitempty"`
}

// Person is a holder or a waiter.
type Person struct {
	Instance string    `json:"instance,omitempty"`
	Host     string    `json:"host,omitempty"`
	Detached bool      `json:"detached,omitempty"` // no instance has the lock: it waits for its token
	Mode     string    `json:"mode,omitempty"`
	Permits  int       `json:"permits,omitempty"` // it waits for one of so many
	Since    time.Time `json:"since,omitzero"`
	LeftMS   int64     `json:"lease_left_ms,omitempty"` // -1: it never expires
	Fence    string    `json:"fence,omitempty"`
}

// Break is a lease ended by force.
type Break struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	Holder string    `json:"holder"`
	Fence  string    `json:"fence,omitempty"`
}

// NewLockAndRuns returns what programs get of one lock.
func NewLockAndRuns(i distributed.Inspection, runs distributed.Runs, now time.Time) Lock {
	l := NewLock(i)
	l.LastAcquired, l.LastRun, l.LastSuccess = utc(lastAcquired(i, now)), newRun(runs.Last), newRun(runs.Success)
	return l
}

// NewLock returns what programs get of one of several.
func NewLock(i distributed.Inspection) Lock {
	l := Lock{
		Key: i.Key, Held: i.Held(), Foreign: i.Foreign, Since: utc(i.Since), Fence: number(i.Fence), Holders: []Person{},
		MoreHolders: i.MoreHolders, Waiting: Waiting(i),
	}
	if l.Held && !l.Foreign {
		l.Mode = i.Mode.String()
	}
	if l.Foreign {
		l.Fence = "" // it has none: the last one is of the holder before
	}
	for _, h := range i.Holders {
		p := Person{Instance: h.Instance, Host: Host(h.Instance), Since: utc(h.Since), LeftMS: h.Left.Milliseconds(), Fence: number(h.Fence)}
		if h.Left < 0 {
			p.LeftMS = -1
		}
		if p.Detached = h.Detached(); p.Detached {
			p.Instance, p.Host = "", ""
		}
		l.Holders = append(l.Holders, p)
	}
	for _, w := range i.Waiters {
		l.Waiters = append(l.Waiters, Person{Instance: w.Instance, Host: Host(w.Instance), Mode: w.Mode.String(), Permits: w.Limit, Since: utc(w.Since)})
	}
	if i.Broken != nil {
		l.Broken = NewBreak(*i.Broken)
	}
	return l
}

// NewBreak is NewLock for a break.
func NewBreak(b distributed.Breaking) *Break {
	return &Break{At: utc(b.At), By: b.By, Reason: b.Reason, Holder: b.Holder, Fence: number(b.Fence)}
}

// utc keeps the zero time, which is left out.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

func number(fence uint64) string {
	if fence == 0 {
		return ""
	}
	return strconv.FormatUint(fence, 10)
}

// JSON writes a value in lines. Terminals get it as well, so what is not printable is escaped.
func JSON(w io.Writer, v any) error {
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, nametext.JSON(text.String()))
	return err
}

// Locks is NewLock for several.
func Locks(all []distributed.Inspection) []Lock {
	locks := make([]Lock, len(all))
	for n, i := range all {
		locks[n] = NewLock(i)
	}
	return locks
}

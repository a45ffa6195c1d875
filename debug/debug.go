// Package debug shows the locks of a process over HTTP: holders, waiters, and for how long.
//
//	admin.Handle("GET /debug/wllock", debug.Handler(locker))
//
// Mount it where only operators have access: keys may name customers and their orders. It is a table for people, and JSON
// for programs, with ?format=json or an Accept header of application/json. It is read-only, and shows the 100 keys with the
// most waiters.
package debug

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/nametext"
)

// limit is the maximum number of keys shown: more than one reads, and cheap to collect.
const limit = 100

// Handler returns a handler that shows the locks of a Locker. It panics if that is nil.
func Handler(locker *wllock.Locker) http.Handler {
	if locker == nil {
		panic("debug: Handler(nil): want a Locker")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "read-only: use GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		p := take(locker)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff") // keys come from clients
		w.Header().Add("Vary", "Accept")
		if wantsJSON(r) {
			w.Header().Set("Content-Type", "application/json")
			p.writeJSON(w)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		p.writeText(w)
	})
}

func wantsJSON(r *http.Request) bool {
	if format := r.URL.Query().Get("format"); format != "" {
		return format == "json"
	}
	return strings.Contains(r.Header.Get("Accept"), "application/json")
}

// page is the data of a response.
type page struct {
	at    time.Time
	of    string // the Locker's id
	stats wllock.Stats
	locks []wllock.LockInfo
	more  bool // there are more keys than limit
}

func take(l *wllock.Locker) page {
	p := page{at: time.Now(), of: l.Instance(), stats: l.Stats(), locks: l.Locks(limit + 1)}
	if p.more = len(p.locks) > limit; p.more {
		p.locks = p.locks[:limit]
	}
	return p
}

// document is the page as JSON.
type document struct {
	Time     time.Time `json:"time"`
	Instance string    `json:"instance"` // the Locker's id
	Waiting  int64     `json:"waiting"`  // callers, over all keys
	Held     int64     `json:"held"`     // locks, over all keys
	Backend  backend   `json:"backend"`
	More     bool      `json:"more"` // there are more keys, with fewer waiters
	Locks    []entry   `json:"locks"`
}

type backend struct {
	Available bool      `json:"available"`
	Since     time.Time `json:"since"`
	Error     string    `json:"error,omitempty"`
}

type entry struct {
	Key         string    `json:"key"`
	Mode        string    `json:"mode"`
	Waiting     int       `json:"waiting"`
	AtBackend   bool      `json:"at_backend"`
	Holders     int       `json:"holders"`
	Batch       int       `json:"batch"`            // callers of the batch that runs
	Holder      string    `json:"holder,omitempty"` // the id of the Locker that has the lock
	HeldSeconds float64   `json:"held_seconds"`
	Fence       uint64    `json:"fence,string"` // beyond 2^53, where many JSON parsers round numbers
	Turns       int       `json:"turns"`
	Until       time.Time `json:"until,omitzero"`
	Lingering   bool      `json:"lingering"`
	Staying     bool      `json:"staying"` // the function has returned, and the lock stays taken
	Degraded    bool      `json:"degraded"`
}

func (p page) writeJSON(w io.Writer) {
	d := document{Time: p.at, Instance: p.of, Waiting: p.stats.Total.Waiting, Held: p.stats.Total.Held, More: p.more, Locks: []entry{}}
	d.Backend = backend{Available: p.stats.Backend.Available, Since: p.stats.Backend.Since}
	if err := p.stats.Backend.Err; err != nil {
		d.Backend.Error = err.Error()
	}
	for _, l := range p.locks {
		d.Locks = append(d.Locks, entry{Key: l.Key, Mode: l.Mode, Waiting: l.Waiting, AtBackend: l.AtBackend,
			Holders: l.Holders, Holder: l.Holder, Batch: l.Batch, HeldSeconds: l.HeldFor.Seconds(), Fence: l.Fence, Turns: l.Turns, Until: l.Until,
			Lingering: l.Lingering, Staying: l.Staying, Degraded: l.Degraded})
	}
	_ = json.NewEncoder(w).Encode(d) // fails only if the client has disconnected
}

// writeText writes the page as a table.
func (p page) writeText(w io.Writer) {
	fmt.Fprintf(w, "%d waiting, %d held\ninstance %s\n", p.stats.Total.Waiting, p.stats.Total.Held, p.of)
	if b := p.stats.Backend; b.Available {
		fmt.Fprintf(w, "backend available for %s\n\n", short(p.at.Sub(b.Since)))
	} else {
		fmt.Fprintf(w, "BACKEND NOT AVAILABLE for %s: %q\n\n", short(p.at.Sub(b.Since)), b.Err.Error())
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tMODE\tWAITING\tHOLDERS\tHOLDER\tBATCH\tHELD\tFENCE\tTURNS\tLEASE\tSTATE")
	for _, l := range p.locks {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%d\t%s\t%d\t%d\t%s\t%s\n", nametext.Quote(l.Key), l.Mode, l.Waiting, l.Holders, p.holder(l), l.Batch,
			short(l.HeldFor), l.Fence, l.Turns, p.left(l.Until), state(l))
	}
	_ = t.Flush() // as above
	if p.more {
		fmt.Fprintf(w, "more keys exist; these %d have the most waiters\n", limit)
	}
}

// holder returns the holder in a word: its own process is not named in each line.
func (p page) holder(l wllock.LockInfo) string {
	switch l.Holder {
	case "":
		return "-"
	case p.of:
		return "here"
	}
	return nametext.Quote(l.Holder)
}

// left returns the remaining time of a lease, without renewals.
func (p page) left(until time.Time) string {
	if until.IsZero() {
		return "-"
	}
	return short(until.Sub(p.at))
}

// state returns the state of a lock in one word.
func state(l wllock.LockInfo) string {
	switch {
	case l.Holders > 0 && l.Degraded:
		return "degraded" // held, without a lease
	case l.Staying:
		return "staying" // taken for at least as long as its holder asked for, which has returned
	case l.Holders > 0:
		return "held"
	case l.AtBackend:
		return "queued" // at the backend
	case l.Lingering:
		return "lingering"
	default:
		return "passing" // between two of the other states
	}
}

// short rounds d to the digits that matter.
func short(d time.Duration) string {
	if d < time.Millisecond && d > -time.Millisecond {
		return d.Round(time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

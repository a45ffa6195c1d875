package history

import (
	"context"
	"encoding/json"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wllock/wllock"
)

// What a line says: see the package.
type What string

// The words of a journal.
const (
	Ask     What = "ask"
	Queued  What = "queued"
	Held    What = "held"
	Read    What = "read"
	Got     What = "got"
	Write   What = "write"
	Wrote   What = "wrote"
	Refused What = "refused"
	Leave   What = "leave"
	Back    What = "back"
	Faulty  What = "fault"
)

// Event is a line.
type Event struct {
	At      int64  `json:"at"` // see Now
	Process string `json:"process"`
	What    What   `json:"what"`
	Call    int64  `json:"call,omitempty"` // which of the process's calls, from 1

	Request        // ask
	Fence   uint64 `json:"fence,omitempty"` // held. 0: there is none
	Until   int64  `json:"until,omitempty"` // held, leave: how long the lease lasts at least. 0: the caller knows that it has none
	Alone   bool   `json:"alone,omitempty"` // held, leave: it has no lease, and runs all the same: see wllock.LocalOnly
	Was     int64  `json:"was,omitempty"`   // got, write: the value read
	New     int64  `json:"new,omitempty"`   // write
	Error   string `json:"error,omitempty"` // back
	Fault          // fault: it lasted from Since to At
}

// Request is what a caller asks for: an exclusive lock, unless it is Shared or one of several Permits.
type Request struct {
	Caller   string `json:"caller,omitempty"`
	Key      string `json:"key,omitempty"`
	Shared   bool   `json:"shared,omitempty"`
	Permits  int    `json:"permits,omitempty"`
	NoWait   bool   `json:"nowait,omitempty"`
	Deadline int64  `json:"deadline,omitempty"` // 0: none
}

func (r Request) exclusive() bool { return !r.Shared && r.Permits == 0 }

// Fault is what has happened to a process.
type Fault struct {
	Name  string `json:"fault,omitempty"` // Kill, Stop, Stall, or what else a test does, as "cut"
	On    string `json:"on,omitempty"`    // the process. Empty: all of them
	Since int64  `json:"since,omitempty"`
}

func (f Fault) concerns(process string) bool { return f.On == process || f.On == "" }

// Faults that the package knows. A process that was stopped or stalled could not be in time.
const (
	Kill  = "kill"
	Stop  = "stop"
	Stall = "stall" // it noticed that it had not run: see Journal.Watch
)

// Now is the time by the clock that all processes share.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

// Clock is a time of this process by that clock.
func Clock(t time.Time) int64 { return Now() + int64(time.Until(t)) }

// Journal is what one process writes. Its methods may be called by any goroutine. A line that cannot be written is a panic, for the step that
// it announces must not be taken.
type Journal struct {
	file    *os.File // its Write is atomic, and is not buffered
	process string
	calls   atomic.Int64
}

// NewJournal returns the journal of a process, whose name is no other's of the run.
func NewJournal(file *os.File, process string) *Journal {
	return &Journal{file: file, process: process}
}

func (j *Journal) note(e Event) {
	e.Process = j.process
	if e.At == 0 {
		e.At = Now()
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err)
	}
}

// Fault notes what has happened to a process, from f.Since until now.
func (j *Journal) Fault(f Fault) { j.note(Event{What: Faulty, Fault: f}) }

// Stalls are looked for as often as a goroutine sleeps that long, and are noted if it slept for many times that.
const (
	stallTick  = 5 * time.Millisecond
	leastStall = 4 * stallTick
)

// Watch notes when the process did not run, until ctx ends.
func (j *Journal) Watch(ctx context.Context) {
	for since := Now(); ctx.Err() == nil; since = Now() {
		time.Sleep(stallTick)
		if Now()-since > int64(leastStall) {
			j.Fault(Fault{Stall, j.process, since})
		}
	}
}

// Entry is a call in a journal.
type Entry struct {
	journal *Journal
	call    int64
}

// Ask notes that a call is about to be made.
func (j *Journal) Ask(r Request) Entry {
	e := Entry{j, j.calls.Add(1)}
	e.Note(Event{What: Ask, Request: r})
	return e
}

// Note notes what has no method of its own: a read or a write, before it and when it is answered, and a place in a queue. An answer that
// says neither yes nor no is not noted.
func (e Entry) Note(v Event) {
	v.Call = e.call
	e.journal.note(v)
}

// Held notes that the call's function runs, and whether it believes in its lease. It may be called again.
func (e Entry) Held(h *wllock.Held) { e.look(Held, h) }

// Leave notes that the function returns.
func (e Entry) Leave(h *wllock.Held) { e.look(Leave, h) }

func (e Entry) look(what What, h *wllock.Held) {
	v := Event{At: Now(), What: what, Fence: h.Fence()}
	switch until := Clock(h.Until()); {
	case h.Err() != nil:
	case h.Degraded():
		v.Alone = true
	default:
		v.Until = until
	}
	e.Note(v)
}

// Back notes that the call has returned.
func (e Entry) Back(err error) {
	v := Event{At: Now(), What: Back}
	if err != nil {
		v.Error = err.Error()
	}
	e.Note(v)
}

package debug

import (
	"encoding/json"
	"io"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/nametext"
)

// document is the page as JSON.
type document struct {
	Time    time.Time `json:"time"`
	PID     int       `json:"pid"`
	Uptime  float64   `json:"uptime_seconds"` // of the process
	Lockers []locker  `json:"lockers"`
}

type locker struct {
	System         string                      `json:"system"`
	Instance       string                      `json:"instance"` // the Locker's id
	Backend        backend                     `json:"backend"`
	Total          wllock.NameStats            `json:"total"` // over all names
	Names          map[string]wllock.NameStats `json:"names"`
	MoreNames      bool                        `json:"more_names"` // there are more, with fewer waiters
	LastLost       *lost                       `json:"last_lost"`  // null: none was lost
	Slowest        *wllock.LockInfo            `json:"slowest"`    // held for the longest time; null: none is held
	Jobs           []job                       `json:"jobs"`       // the latest run of each that this process ran
	Locks          []wllock.LockInfo           `json:"locks"`
	MoreLocks      bool                        `json:"more_locks"` // there are more, with fewer waiters
	ReportPanics   uint64                      `json:"report_panics"`
	ReportsDropped uint64                      `json:"reports_dropped"`
}

type backend struct {
	Available bool      `json:"available"`
	Since     time.Time `json:"since"`
	Answered  time.Time `json:"answered,omitzero"` // when it last answered anything; absent: not known
	Error     string    `json:"error,omitempty"`
}

type lost struct {
	At    time.Time `json:"at"`
	Key   string    `json:"key"`
	Error string    `json:"error"`
}

// job has the members of wllock jobs --json that one process knows.
type job struct {
	Key    string    `json:"key"`
	Began  time.Time `json:"began"`
	Ended  time.Time `json:"ended"`
	Result string    `json:"result"`
	Until  time.Time `json:"taken_until,omitzero"`
}

// JSON implements opspage.Page.
func (p page) JSON(w io.Writer) {
	d := document{Time: p.at, PID: p.pid, Uptime: p.uptime.Seconds()}
	for _, s := range p.lockers {
		d.Lockers = append(d.Lockers, s.document())
	}
	text, _ := json.Marshal(d)                                 // it has no type that fails
	_, _ = io.WriteString(w, nametext.JSON(string(text))+"\n") // fails only if the client has disconnected
}

func (s section) document() locker {
	b := s.stats.Backend
	d := locker{
		System: s.system, Instance: s.instance, Backend: backend{Available: b.Available, Since: b.Since, Answered: b.Answered},
		Total: s.stats.Total, Names: map[string]wllock.NameStats{}, MoreNames: s.moreNames,
		Slowest: s.slowest, Jobs: []job{}, Locks: append([]wllock.LockInfo{}, s.locks...), MoreLocks: s.moreLocks,
		ReportPanics: s.stats.ReportPanics, ReportsDropped: s.stats.ReportsDropped,
	}
	if b.Err != nil {
		d.Backend.Error = b.Err.Error()
	}
	if l := s.stats.LastLost; l != nil {
		d.LastLost = &lost{l.At, l.Key, l.Err.Error()}
	}
	for _, r := range s.stats.Runs {
		d.Jobs = append(d.Jobs, job{r.Key, r.Began.UTC().Truncate(time.Millisecond), r.Ended().UTC().Truncate(time.Millisecond), r.Result, r.Until.UTC().Truncate(time.Millisecond)})
	}
	for _, n := range s.names {
		d.Names[n.Name] = n.NameStats
	}
	return d
}

package debug

import (
	_ "embed" // the page's template
	"io"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/nametext"
	"github.com/wllock/wllock/internal/opspage"
)

var (
	//go:embed page.html
	pageText     string
	pageTemplate = opspage.Template(pageText)
)

// htmlPage is what the template shows. All text is made here; the template only places it, and html/template escapes it.
type htmlPage struct {
	Refresh int // seconds; 0: never
	At      string
	PID     int
	Uptime  string
	Lockers []htmlLocker
	Legend  []opspage.Term
}

type htmlLocker struct {
	opspage.Backend
	System, Instance             string
	Total                        wllock.NameStats
	Slowest                      *htmlLock
	Lost                         *lostLine
	Names                        []htmlName
	Locks                        []htmlLock
	Jobs                         []jobLine
	MoreNames                    int // these many are shown, and there are more; 0: all are
	MoreLocks                    int
	ReportPanics, ReportsDropped uint64
}

type htmlName struct {
	nameLine
	Turn, Limit string
}

type htmlLock struct {
	wllock.LockInfo
	Key, State, Holder, Held, Lease, Limit string
	Max                                    int // of the bar; 0: none is drawn
	Warn, Full                             int // above these the bar is yellow, and red
}

// HTML implements opspage.Page.
func (p page) HTML(w io.Writer, refresh int) {
	d := htmlPage{
		Refresh: refresh, At: p.at.UTC().Format(time.DateTime + " UTC"), PID: p.pid, Uptime: uptime(p.uptime), Legend: legend,
	}
	for _, s := range p.lockers {
		d.Lockers = append(d.Lockers, s.html())
	}
	opspage.Write(w, pageTemplate, d)
}

func (s section) html() htmlLocker {
	h := htmlLocker{
		Backend: s.backend(), System: s.system, Instance: s.instance, Total: s.stats.Total, Lost: s.lastLost(), Jobs: s.jobs(), ReportPanics: s.stats.ReportPanics, ReportsDropped: s.stats.ReportsDropped,
	}
	if s.slowest != nil {
		slowest := s.lock(*s.slowest)
		h.Slowest = &slowest
	}
	for _, n := range s.names {
		h.Names = append(h.Names, htmlName{nameLine: n, Turn: turn(n), Limit: number(n.Threshold)})
	}
	for _, l := range s.locks {
		h.Locks = append(h.Locks, s.lock(l))
	}
	if s.moreNames {
		h.MoreNames = nameLimit
	}
	if s.moreLocks {
		h.MoreLocks = limit
	}
	return h
}

func (s section) lock(l wllock.LockInfo) htmlLock {
	h := htmlLock{
		LockInfo: l, Key: nametext.Quote(l.Key), State: state(l), Holder: s.holder(l), Held: "-", Lease: s.left(l.Until),
	}
	if l.Holders > 0 {
		h.Held = short(l.HeldFor)
	}
	limit := s.threshold(l.Key)
	h.Limit = number(limit)
	if limit > 0 {
		h.Max, h.Warn, h.Full = limit, limit*7/10, limit-1
	}
	return h
}

// legend explains the words of the page; the states of a lock come first.
var legend = []opspage.Term{
	{"held", "a caller of this process holds the lock"},
	{"degraded", "held without a lease, because the backend is or was away (LocalOnly): others may hold it, too"},
	{"staying", "the function has returned, and the lock stays taken until WithHoldAtLeast has passed"},
	{"queued", "the first caller here waits at the backend: another process holds the lock"},
	{"lingering", "nobody uses the lease; it is kept for the next caller here (WithLinger)"},
	{"passing", "between two of these states, for a moment"},
	{"holder", "the instance that has the lock, if known; \"here\" is this one. wllock who KEY asks the backend"},
	{"waiting", "callers in the queue of this process; the bar is full at the threshold, where further ones get ErrQueueFull"},
	{"fence", "the fencing token: it grows with every holder. A store that checks it refuses a holder that comes too late"},
	{"turns", "callers served by the lease at hand; hand-offs are those after the first"},
	{"lease", "how long the lease lasts if it is not renewed; a healthy one is renewed every third of its TTL"},
	{"turn", "how long a caller keeps the lock of this name, on average over the last ten"},
	{"shed", "calls refused at once because the queue was full (ErrQueueFull)"},
	{"time-outs", "calls whose wait ended before their turn came (ErrWaitTimeout)"},
	{"unavailable", "calls refused because the backend is away or refuses (ErrUnavailable)"},
	{"lost", "locks lost while held (ErrLeaseLost): look for pauses, a restarted backend, a deleted key"},
	{"result", "how the last run of a job ended in this process. wllock jobs knows those of all processes, where the backend notes them"},
	{"overstays", "locks held for longer than WithLockTimeMax"},
	{"reports dropped", "log lines, spans and measurements left out: a logger or exporter is too slow for what happens here. No lock suffers"},
}

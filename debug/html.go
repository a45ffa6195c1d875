package debug

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page's template and style
	"encoding/base64"
	"html/template"
	"io"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/nametext"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	styleText string

	pageTemplate = template.Must(template.New("page").Parse(pageText))
)

// policy allows the page its own style, by its hash, and nothing else: no script, no image, no form, no frame around it. A key that
// got past the escaping of html/template could still run and load nothing.
var policy = func() string {
	hash := sha256.Sum256([]byte(styleText))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// htmlPage is what the template shows. All text is made here; the template only places it, and html/template escapes it.
type htmlPage struct {
	Style   template.CSS
	Refresh int // seconds; 0: never
	At      string
	PID     int
	Uptime  string
	Lockers []htmlLocker
	Legend  []term
}

type htmlLocker struct {
	System, Instance             string
	Available                    bool
	Since, Error                 string
	Answered                     string // the age of the last answer; "": not known
	Total                        wllock.NameStats
	Slowest                      *htmlLock
	Lost                         *lostLine
	Names                        []htmlName
	Locks                        []htmlLock
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

func (p page) writeHTML(w io.Writer, refresh int) {
	d := htmlPage{
		Style: template.CSS(styleText), Refresh: refresh, At: p.at.UTC().Format(time.DateTime + " UTC"), //nolint:gosec // it is ours
		PID: p.pid, Uptime: uptime(p.uptime), Legend: legend,
	}
	for _, s := range p.lockers {
		d.Lockers = append(d.Lockers, s.html())
	}
	var b bytes.Buffer // a template that fails half-way must not leave half a page
	if err := pageTemplate.Execute(&b, d); err != nil {
		_, _ = io.WriteString(w, "the page cannot be shown; ?format=text can\n")
		return
	}
	_, _ = b.WriteTo(w)
}

func (s section) html() htmlLocker {
	h := htmlLocker{
		System: s.system, Instance: s.instance, Available: s.stats.Backend.Available, Since: short(s.at.Sub(s.stats.Backend.Since)),
		Answered: s.answered(),
		Total:    s.stats.Total, Lost: s.lastLost(), ReportPanics: s.stats.ReportPanics, ReportsDropped: s.stats.ReportsDropped,
	}
	if err := s.stats.Backend.Err; err != nil {
		h.Error = err.Error()
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

// term is a word of the page, and what it means.
type term struct{ Word, Means string }

// legend explains the words of the page; the states of a lock come first.
var legend = []term{
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
	{"overstays", "locks held for longer than WithLockTimeMax"},
	{"reports dropped", "log lines, spans and measurements left out: a logger or exporter is too slow for what happens here. No lock suffers"},
}

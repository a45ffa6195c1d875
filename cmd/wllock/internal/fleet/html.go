package fleet

import (
	_ "embed" // the page's template
	"io"
	"strconv"
	"time"

	"github.com/wllock/wllock/cmd/wllock/internal/live"
	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/opspage"
)

var (
	//go:embed page.html
	pageText     string
	pageTemplate = opspage.Template(pageText)
)

const (
	// again is after how many seconds a browser loads the page again, if that is wanted.
	again = 5
	// queueShown is how many waiters a line names.
	queueShown = 3
)

// htmlPage is what the template shows. All text is made here, and html/template escapes it.
type htmlPage struct {
	live.View
	Refresh, Again int // seconds
	Served, At     string
	Backend        opspage.Backend
	Prefix, Filter string
	Links          struct{ All, Still, Refresh, Text, JSON string } // addresses of this page; All: without a query, "" if it has none
	Longest        *htmlLock
	Locks          []htmlLock
	Jobs           []htmlJob
	JobsError      string // "": there is none
	Legend         []opspage.Term
}

type htmlLock struct {
	Key, Held, Holder, Lease, Mode, Fence string
	Waiting                               int
	Queue                                 []htmlWaiter
	MoreQueue                             int // beside those
}

type htmlWaiter struct{ Name, Waits string }

type htmlJob struct {
	show.JobText
	OK bool
}

// HTML implements opspage.Page.
func (p page) HTML(w io.Writer, refresh int) {
	d := htmlPage{
		View: p.View, Refresh: refresh, Again: again, Served: p.served, At: p.at.UTC().Format(time.DateTime + " UTC"), Backend: p.backend(),
		Prefix: p.prefix, Filter: p.filter.String(), JobsError: p.jobsError(), Legend: legend,
	}
	d.Links.Still = p.link("format", "html")
	d.Links.Refresh = p.link("format", "html", "refresh", strconv.Itoa(again))
	d.Links.Text, d.Links.JSON = p.link("format", "text"), p.link("format", "json")
	if d.Prefix+d.Filter != "" {
		d.Links.All = "?format=html"
	}
	if p.Longest != nil {
		longest := p.lock(p.Longest)
		d.Longest = &longest
	}
	for _, l := range p.View.Locks {
		d.Locks = append(d.Locks, p.lock(l))
	}
	for _, r := range p.View.Jobs {
		d.Jobs = append(d.Jobs, htmlJob{show.NewJobText(r, p.at), r.Last.Result == distributed.RunOK})
	}
	opspage.Write(w, pageTemplate, d)
}

func (p page) lock(l *live.Lock) htmlLock {
	i, at := l.Inspection, p.known()
	h := htmlLock{
		Key: show.Text(l.Name), Held: show.AgeText(i, at), Holder: show.Holder(i), Lease: show.LeftText(i), Mode: show.Mode(i),
		Fence: show.FenceText(i), Waiting: show.Waiting(i),
	}
	for _, w := range i.Waiters[:min(queueShown, len(i.Waiters))] {
		name, waits := show.Waiter(w, at)
		h.Queue = append(h.Queue, htmlWaiter{name, waits})
	}
	if len(h.Queue) > 0 {
		h.MoreQueue = h.Waiting - len(h.Queue)
	}
	return h
}

// legend explains the words of the page.
var legend = []opspage.Term{
	{"waiting", "instances in the queue of a lock. A process with many callers is one of them: its own page tells of these"},
	{"queue", "who waits, the next holder first, and for how long"},
	{"holder", "the instance that has the lock. wllock who KEY tells more of it"},
	{"lease", "how long the lock stays taken if its holder dies now: a healthy one renews it every third of its TTL"},
	{"fence", "the fencing token: it grows with every holder. A store that checks it refuses a holder that comes too late"},
	{"reading on", "there are so many locks that not all are read yet"},
	{"result", "how the last run under the lock ended. That a job has not run when it should is for wllock jobs --within"},
	{"next", "until when the lock stays taken although the run has ended (--hold-at-least)"},
}

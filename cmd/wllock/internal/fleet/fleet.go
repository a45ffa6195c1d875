// Package fleet is a page of the locks of all processes. It looks and answers as package debug's page of one process does.
package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/wllock/wllock/cmd/wllock/internal/live"
	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/opspage"
)

const (
	// limit is how many locks, and jobs, are shown: more than one reads, and little to send.
	limit = 100
	// patience is how long a page is prepared: a filter of thousands of states, for many locks, takes longer.
	patience = 5 * time.Second
)

// Handler returns a handler that shows what watch reads. All names begin with served.
func Handler(watch *live.Watch, served string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !opspage.Admitted(w, r) {
			return
		}
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		q, err := newQuery(r.URL.Query(), served)
		if err != nil {
			http.Error(w, show.Lines(err.Error()), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		view, err := watch.View(ctx, q.wants, limit)
		if err != nil {
			http.Error(w, fmt.Sprintf("the page was not ready in %v: ask for a simpler filter", patience), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Security-Policy", opspage.Policy("'self'"))
		opspage.Answer(w, r, page{view, q, served, time.Now()})
	})
}

// query is what a viewer wants to see. It is matched with names as they are shown, so hashed keys stay hidden.
type query struct {
	prefix string
	filter *regexp.Regexp
}

func newQuery(values url.Values, served string) (q query, err error) {
	q.prefix = values.Get("prefix")
	if !strings.HasPrefix(q.prefix, served) && !strings.HasPrefix(served, q.prefix) {
		return q, fmt.Errorf("prefix %q: want more of what all names here begin with, %q", q.prefix, served)
	}
	if q.filter, err = regexp.Compile(values.Get("filter")); err != nil {
		return q, fmt.Errorf("filter: %w", err)
	}
	return q, nil
}

func (q query) wants(name string) bool {
	return strings.HasPrefix(name, q.prefix) && q.filter.MatchString(name)
}

// link is the address of the same page with other parameters: names and values by turns.
func (q query) link(others ...string) string {
	values := url.Values{}
	for n := 0; n < len(others); n += 2 {
		values.Set(others[n], others[n+1])
	}
	for name, value := range map[string]string{"prefix": q.prefix, "filter": q.filter.String()} {
		if value != "" {
			values.Set(name, value)
		}
	}
	return "?" + values.Encode()
}

// page is one answer.
type page struct {
	live.View
	query
	served string
	at     time.Time
}

// known is when the locks were as they are shown: in an outage, at the last answer.
func (p page) known() time.Time {
	if p.Err != nil {
		return p.Answered
	}
	return p.at
}

// backend is the state of the backend.
func (p page) backend() opspage.Backend {
	b := opspage.Backend{Available: p.Err == nil, Since: show.Short(p.at.Sub(p.Since))}
	if !p.Answered.IsZero() {
		b.Answered = show.Short(p.at.Sub(p.Answered))
	}
	if p.Err != nil {
		b.Error = show.Text(p.Err.Error())
	}
	return b
}

// jobsError says why runs cannot be read, if that is not because of the backend. "": they can.
func (p page) jobsError() string {
	if p.JobsErr == nil || p.Err != nil {
		return ""
	}
	return "the runs of jobs cannot be read: " + show.Text(p.JobsErr.Error())
}

// inspections are the locks with their names as they are shown.
func (p page) inspections() []distributed.Inspection {
	all := make([]distributed.Inspection, len(p.Locks))
	for n, l := range p.Locks {
		all[n] = l.Inspection
		all[n].Key = l.Name
	}
	return all
}

// document is the page as JSON. Its locks are those of wllock top --json, and its jobs those of wllock jobs --json.
type document struct {
	Time      time.Time   `json:"time"`
	Prefix    string      `json:"prefix"`
	Backend   backend     `json:"backend"`
	Held      int         `json:"held"`
	Waiting   int         `json:"waiting"`
	Complete  bool        `json:"complete"` // false: there may be more, which are not read yet
	Locks     []show.Lock `json:"locks"`
	MoreLocks int         `json:"more_locks"`
	Jobs      []show.Job  `json:"jobs"` // null: the backend keeps none
	MoreJobs  int         `json:"more_jobs"`
}

type backend struct {
	Available bool      `json:"available"`
	Since     time.Time `json:"since"`
	Answered  time.Time `json:"answered,omitzero"` // the locks are as they were then; absent: it never did
	Error     string    `json:"error,omitempty"`
}

// JSON implements opspage.Page.
func (p page) JSON(w io.Writer) {
	d := document{
		Time: p.at.UTC(), Prefix: p.served, Held: p.Held, Waiting: p.Waiting, Complete: p.Complete,
		Locks: show.Locks(p.inspections()), MoreLocks: p.MoreLocks, MoreJobs: p.MoreJobs,
		Backend: backend{p.Err == nil, p.Since.UTC(), p.Answered.UTC(), p.backend().Error},
	}
	if p.KeepsRuns {
		d.Jobs = show.Jobs(p.Jobs)
	}
	_ = show.JSON(w, d) // fails only if the client has disconnected
}

// Text implements opspage.Page.
func (p page) Text(w io.Writer) {
	fmt.Fprintf(w, "%d waiting, %d held", p.Waiting, p.Held)
	if !p.Complete {
		fmt.Fprint(w, ", reading on")
	}
	fmt.Fprintf(w, "\n%s*, %s\n%v\n", p.served, p.at.UTC().Format(time.DateTime+" UTC"), p.backend())
	if p.Err != nil && !p.Answered.IsZero() {
		fmt.Fprintln(w, "the locks are as the last answer told of them")
	}
	fmt.Fprintln(w)
	_ = show.Table(w, p.inspections(), p.known(), 0) // as above
	if p.MoreLocks > 0 {
		fmt.Fprintf(w, "and %d more\n", p.MoreLocks)
	}
	if !p.KeepsRuns {
		return
	}
	fmt.Fprintln(w)
	if err := p.jobsError(); err != "" {
		fmt.Fprintln(w, err)
	}
	_ = show.JobTable(w, p.Jobs, p.at) // as above
	if p.MoreJobs > 0 {
		fmt.Fprintf(w, "and %d more\n", p.MoreJobs)
	}
}

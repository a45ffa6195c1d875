package show

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Job is what is kept of the runs under a lock, for programs.
type Job struct {
	Key     string `json:"key"`
	Last    Run    `json:"last"`
	Success *Run   `json:"last_success,omitempty"`
}

// Run is one of them.
type Run struct {
	Instance string    `json:"instance"`
	Host     string    `json:"host"`
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended"`
	TookMS   int64     `json:"took_ms"`
	Result   string    `json:"result"`
	Until    time.Time `json:"taken_until,omitzero"`
	Fence    string    `json:"fence,omitempty"`
}

// Jobs is NewLock for runs.
func Jobs(all []distributed.Runs) []Job {
	jobs := make([]Job, len(all))
	for i, r := range all {
		jobs[i] = Job{Key: r.Last.Key, Last: newRun(r.Last)}
		if !r.Success.Began.IsZero() {
			success := newRun(r.Success)
			jobs[i].Success = &success
		}
	}
	return jobs
}

func newRun(r distributed.Run) Run {
	return Run{
		Instance: r.Instance, Host: Host(r.Instance), Began: utc(r.Began), Ended: utc(r.Ended()), TookMS: r.Took.Milliseconds(), Result: r.Result,
		Until: utc(r.Until), Fence: number(r.Fence),
	}
}

// JobTable writes a line for each lock: how the latest run ended and where, and since when none has succeeded.
func JobTable(w io.Writer, all []distributed.Runs, now time.Time) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "JOB\tLAST RUN\tTOOK\tRESULT\tHOST\tLAST SUCCESS\tNEXT")
	for _, r := range all {
		j := NewJobText(r, now)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", j.Job, j.Last, j.Took, j.Result, j.Host, j.Success, j.Next)
	}
	return table.Flush()
}

// JobText is what columns tell of a job.
type JobText struct{ Job, Last, Took, Result, Host, Success, Next string }

// NewJobText returns the texts of the columns.
func NewJobText(r distributed.Runs, now time.Time) JobText {
	j := JobText{
		Text(r.Last.Key), ago(r.Last.Ended(), now), Short(r.Last.Took), Text(r.Last.Result), Text(Host(r.Last.Instance)), "never", "any time",
	}
	if !r.Success.Began.IsZero() {
		j.Success = ago(r.Success.Ended(), now)
	}
	if r.Last.Until.After(now) {
		j.Next = "in " + Short(r.Last.Until.Sub(now))
	}
	return j
}

// ago is how long ago something was, by a clock that another machine may be ahead of.
func ago(t, now time.Time) string { return Short(max(now.Sub(t), 0)) + " ago" }

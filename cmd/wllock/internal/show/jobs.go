package show

import (
	"fmt"
	"io"
	"strconv"
	"strings"
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
		jobs[i] = Job{Key: r.Last.Key, Last: *newRun(r.Last), Success: newRun(r.Success)}
	}
	return jobs
}

// newRun returns nil for none.
func newRun(r distributed.Run) *Run {
	if r.Began.IsZero() {
		return nil
	}
	return &Run{
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

// jobMetrics are the gauges of a job, in Prometheus's names.
var jobMetrics = []struct {
	name, help string
	value      func(distributed.Runs) float64
}{
	{"wllock_job_last_success_timestamp_seconds", "When the latest run of the job that has succeeded ended, 0 if none has.", func(r distributed.Runs) float64 {
		if r.Success.Began.IsZero() {
			return 0
		}
		return float64(r.Success.Ended().UnixMilli()) / 1000
	}},
	{"wllock_job_last_run_timestamp_seconds", "When the latest run of the job ended.", func(r distributed.Runs) float64 {
		return float64(r.Last.Ended().UnixMilli()) / 1000
	}},
	{"wllock_job_last_run_duration_seconds", "How long the latest run of the job took.", func(r distributed.Runs) float64 { return r.Last.Took.Seconds() }},
}

// label escapes a text as Prometheus's format asks for.
var label = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// JobMetrics writes what is kept of runs in the text format of Prometheus.
func JobMetrics(w io.Writer, all []distributed.Runs) error {
	var text strings.Builder
	for _, m := range jobMetrics {
		fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %s gauge\n", m.name, m.help, m.name)
		for _, r := range all {
			system, rest, _ := strings.Cut(r.Last.Key, ":")
			name, key, _ := strings.Cut(rest, ":")
			fmt.Fprintf(&text, "%s{wllock_system=\"%s\",wllock_name=\"%s\",wllock_key=\"%s\"} %s\n", m.name, label.Replace(system), label.Replace(name),
				label.Replace(key), strconv.FormatFloat(m.value(r), 'f', -1, 64))
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// JobText is what columns tell of a job.
type JobText struct{ Job, Last, Took, Result, Host, Success, Next string }

// NewJobText returns the texts of the columns.
func NewJobText(r distributed.Runs, now time.Time) JobText {
	j := JobText{
		Text(r.Last.Key), ago(r.Last.Ended(), now), Short(r.Last.Took), Text(r.Last.Result), Text(Host(r.Last.Instance)), lastSuccess(r, now), "any time",
	}
	if r.Last.Until.After(now) {
		j.Next = "in " + Short(r.Last.Until.Sub(now))
	}
	return j
}

func lastSuccess(r distributed.Runs, now time.Time) string {
	if r.Success.Began.IsZero() {
		return "never"
	}
	return ago(r.Success.Ended(), now)
}

// ago is how long ago something was, by a clock that another machine may be ahead of.
func ago(t, now time.Time) string { return Short(max(now.Sub(t), 0)) + " ago" }

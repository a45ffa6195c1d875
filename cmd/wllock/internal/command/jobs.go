package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/cmd/wllock/internal/child"
	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/distributed"
)

func (a *app) jobs() *cli.Command {
	return &cli.Command{
		Name: "jobs", Usage: "show how the latest runs under locks ended", ArgsUsage: "[SYSTEM[:NAME] | NAME KEY | SYSTEM:NAME:KEY]", Description: jobsDescription,
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "within", HideDefault: true, Usage: "exit with 1 unless each job has succeeded within that time"},
			&cli.BoolFlag{Name: "metrics", Usage: "for Prometheus: gauges, as the textfile collector of its node exporter reads them"},
			jsonFlag, showKeysFlag,
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Bool("metrics") && (c.Bool("json") || c.IsSet("within")) {
				return usageError("--metrics excludes --json and --within: an alert says what is late")
			}
			if d := c.Duration("within"); c.IsSet("within") && d <= 0 {
				return usageError("--within %v: want more than 0s", d)
			}
			prefix, system, err := a.jobPrefix(c)
			if err != nil {
				return err
			}
			settings, err := a.settings(c, system)
			if err != nil {
				return err
			}
			return a.withBackend(ctx, c, reading(settings), func(ctx context.Context, b distributed.Backend) error {
				r, able := distributed.RecorderOf(b)
				if !able {
					return &exit{unavailable, fmt.Errorf("the backend %s keeps no runs", settings.Backend)}
				}
				return a.showJobs(ctx, c, r, prefix)
			})
		},
	}
}

const jobsDescription = `"wllock run" notes when its command began, how long it took, how it ended, and who ran it, for the 1,000 locks of a system that
ran last. This shows what is noted. With --within it is a check for monitoring: it names the jobs that have not
succeeded in time, and exits with 1 if there are any, or if nothing is noted. The time counts from the end of a run.

Exit codes: 0 success, 1 --within: a job has not succeeded in time, 64 wrong usage, 69 the backend is unavailable or keeps no runs.`

// jobPrefix is what the full names of the jobs that are meant begin with: one full name, or that of a list.
func (a *app) jobPrefix(c *cli.Command) (prefix, system string, err error) {
	if args := a.rest(c); len(args) == 2 || len(args) == 1 && strings.Count(args[0], ":") >= 2 {
		return a.fullName(c)
	}
	return a.prefix(c)
}

// runs reads what is kept, in time. Its error can be printed.
func (a *app) runs(ctx context.Context, c *cli.Command, r distributed.Recorder, prefix string) ([]distributed.Runs, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Duration("timeout"))
	defer cancel()
	all, err := r.Runs(ctx, prefix)
	return all, a.told(err)
}

func (a *app) showJobs(ctx context.Context, c *cli.Command, r distributed.Recorder, prefix string) error {
	all, err := a.runs(ctx, c, r, prefix)
	if err != nil {
		return &exit{unavailable, err}
	}
	if !strings.HasSuffix(prefix, ":") { // one full name, with which others may begin
		all = slices.DeleteFunc(all, func(one distributed.Runs) bool { return one.Last.Key != prefix })
	}
	now, within := time.Now(), c.Duration("within")
	late := within > 0 && len(all) == 0
	if late {
		a.say("no run of %s is noted", a.shown(prefix))
	}
	if within > 0 {
		all = slices.DeleteFunc(all, func(one distributed.Runs) bool {
			return !one.Success.Began.IsZero() && now.Sub(one.Success.Ended()) <= within
		})
	}
	for i := range all {
		all[i].Last.Key = a.shown(all[i].Last.Key)
	}
	switch {
	case c.Bool("metrics"):
		return show.JobMetrics(a.out, all)
	case c.Bool("json"):
		err = show.JSON(a.out, show.Jobs(all))
	case len(all) > 0:
		err = show.JobTable(a.out, all, now)
	}
	if err == nil && (late || within > 0 && len(all) > 0) {
		return &exit{code: no}
	}
	return err
}

// runsOf are the latest runs under a lock, none if the backend does not tell: they are said beside what was asked for.
func runsOf(ctx context.Context, i distributed.Inspector, full string) (runs distributed.Runs) {
	if r, able := distributed.RecorderOf(i); able {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		all, _ := r.Runs(ctx, full)
		if n := slices.IndexFunc(all, func(one distributed.Runs) bool { return one.Last.Key == full }); n >= 0 {
			runs = all[n]
		}
	}
	return runs
}

// record notes how a run under the lock has ended, before the lock is released: who sees it free finds the run.
func (j *job) record(locker *wllock.Locker, lock *wllock.Lock, began time.Time, result string) {
	r, able := distributed.RecorderOf(locker.Backend())
	if !able {
		return
	}
	run := distributed.Run{
		Key: lock.Key(), Instance: locker.Instance(), Began: began, Took: time.Since(began), Result: result, Fence: lock.Fence(),
	}
	if j.least > 0 {
		run.Until = began.Add(j.least)
	}
	if err := timely(func(ctx context.Context) error { return r.Record(ctx, run) }); err != nil && !errors.Is(err, wllock.ErrUnavailable) {
		j.app.say("the end of the run was not recorded: %v", err) // while the backend is away, the release says so
	}
}

// resultOf is how a command has ended.
func resultOf(c *child.Child) string {
	switch s := c.Signal(); {
	case s != nil:
		return "signal: " + s.String()
	case c.Code() != 0:
		return fmt.Sprintf("exit %d", c.Code())
	}
	return distributed.RunOK
}

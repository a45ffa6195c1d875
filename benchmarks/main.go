// Command benchmarks runs wllock and other locks side by side over servers that it starts itself, and writes
// tables and plots. It exits with 1 if a lock admitted two holders at once or the run failed, and with 2 on wrong flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/load"
	"github.com/wllock/wllock/benchmarks/internal/report"
	"github.com/wllock/wllock/benchmarks/internal/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, out, errs io.Writer) int {
	p, err := parse(args, out)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(errs, "benchmarks: %v\n(-help lists the flags)\n", err)
		return 2
	}
	if err := p.run(ctx, out); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted, the group under way was not written")
		}
		fmt.Fprintf(errs, "benchmarks: %v\n", err)
		return 1
	}
	return 0
}

// run measures one group after the other. A lock that did not exclude ends it only after the last.
func (p plan) run(ctx context.Context, out io.Writer) error {
	var violated []error
	for _, g := range p.groups() {
		part := p.of(g)
		if part.data = p.dataOf(g); part.data != "" {
			if err := os.Setenv("TMPDIR", part.data); err != nil { // where everything that starts servers makes its folders
				return err
			}
		}
		r, err := part.runGroup(ctx, g, out)
		if err != nil {
			return err
		}
		violated = append(violated, conclude(out, p.out, r))
	}
	return errors.Join(violated...)
}

// runGroup sets the machine up, measures, and writes the results.
func (p plan) runGroup(ctx context.Context, g contender.Group, out io.Writer) (report.Report, error) {
	delayed := slices.ContainsFunc(p.jobs, func(j job) bool { return j.link == load.Delayed })
	m, err := load.NewMachine(ctx, p.stores(), delayed)
	if err != nil {
		return report.Report{}, err
	}
	defer m.Stop()
	r, err := p.measure(ctx, m, g, out)
	if err != nil {
		return r, err
	}
	return r, report.Write(p.out, r)
}

// stores are what the contenders need.
func (p plan) stores() (all []server.Store) {
	for _, c := range p.contenders {
		if !slices.ContainsFunc(p.jobs, func(j job) bool { return j.scenario.Has(c) }) {
			continue
		}
		if all = append(all, c.Store); c.Locks {
			all = append(all, server.Redis)
		}
	}
	return all
}

// conclude prints where the results are, and fails if a lock did not exclude or its fences did not grow.
func conclude(out io.Writer, dir string, r report.Report) error {
	met := filter(r.Goals, func(g report.Verdict) bool { return g.Met })
	fmt.Fprintf(out, "\n%d of %d goals met; see %s\n", len(met), len(r.Goals), filepath.Join(dir, r.Name+".md"))
	if n := r.Violations(); n > 0 {
		return fmt.Errorf("mutual exclusion was violated, or a piece sold wrongly, %d times, see the tables", n)
	}
	if n := r.FencesFallen(); n > 0 {
		return fmt.Errorf("fences did not grow %d times, see the tables", n)
	}
	return nil
}

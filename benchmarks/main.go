// Command benchmarks runs wllock and other locks side by side over a redis-server that it starts itself, and writes
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
	"runtime/pprof"
	"syscall"

	"github.com/wllock/wllock/benchmarks/internal/load"
	"github.com/wllock/wllock/benchmarks/internal/report"
	"github.com/wllock/wllock/benchmarks/internal/server"
	"github.com/wllock/wllock/benchmarks/internal/slowlink"
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
			err = errors.New("interrupted, nothing was written")
		}
		fmt.Fprintf(errs, "benchmarks: %v\n", err)
		return 1
	}
	return 0
}

// run sets the machine up, measures, and writes the results.
func (p plan) run(ctx context.Context, out io.Writer) error {
	s, err := server.Start(ctx)
	if err != nil {
		return err
	}
	defer s.Stop()
	m := load.Machine{Server: s}
	if p.needsProxy() {
		if m.Proxy, err = slowlink.Start(s.Addr, load.Delay); err != nil {
			return err
		}
		defer m.Proxy.Stop()
	}
	stopProfile, err := p.profile()
	if err != nil {
		return err
	}
	r, err := p.measure(ctx, m, out)
	stopProfile()
	if err != nil {
		return err
	}
	if err := report.Write(p.out, r); err != nil {
		return err
	}
	return conclude(out, p.out, r)
}

func (p plan) needsProxy() bool {
	for _, j := range p.jobs {
		if j.link == load.Delayed {
			return true
		}
	}
	return false
}

func (p plan) profile() (stop func(), err error) {
	if p.cpuProfile == "" {
		return func() {}, nil
	}
	f, err := os.Create(p.cpuProfile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, nil
}

// conclude prints where the results are, and fails if a lock did not exclude.
func conclude(out io.Writer, dir string, r report.Report) error {
	met := 0
	for _, g := range r.Goals {
		if g.Met {
			met++
		}
	}
	fmt.Fprintf(out, "\n%d of %d goals met; tables and plots are in %s\n", met, len(r.Goals), dir)
	if n := r.Violations(); n > 0 {
		return fmt.Errorf("mutual exclusion was violated %d times, see the tables", n)
	}
	return nil
}

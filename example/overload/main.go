// Command overload sends a guarded handler ten times the load it can serve one by one, once for each threshold and once in batches,
// and prints the results as Markdown. With -svg FILE it also draws them. Server and clients are one process, which uses the loopback only and ends
// after about a minute.
//
//	go run ./example/overload -svg docs/tuning.svg
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/wllock/wllock"
)

// load describes the requests sent to the handler.
type load struct {
	hold     time.Duration // time of an order under the lock
	times    int           // load as a multiple of the capacity
	patience time.Duration // time-out of a client
	warmUp   time.Duration // longer than patience: an unlimited queue takes that long to degrade
	measured time.Duration
	pause    func(time.Duration)
}

// rate returns the requests per second.
func (l load) rate() float64 { return float64(l.times) / l.hold.Seconds() }

var full = load{
	hold: 3 * time.Millisecond, times: 10, patience: 2 * time.Second, warmUp: 3 * time.Second, measured: 6 * time.Second,
	pause: pause,
}

// trial is one way to guard the handler.
type trial struct {
	threshold int
	batches   bool // one hold for all that wait, up to wllock.DefaultMaxBatch
}

var trials = []trial{{threshold: 0}, {threshold: 5}, {threshold: 50}, {threshold: 500}, {threshold: wllock.Unlimited}, {threshold: 50, batches: true}}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], full, os.Stdout, os.Stderr))
}

// run returns the exit status: 1 if it failed, 2 for a wrong flag.
func run(ctx context.Context, args []string, l load, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("overload", flag.ContinueOnError)
	flags.SetOutput(stderr)
	svg := flags.String("svg", "", "`file` to draw the plot into; none without it")
	switch err := flags.Parse(args); {
	case err == flag.ErrHelp:
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "overload: unexpected argument %q: only flags are allowed\n", flags.Arg(0))
		return 2
	}
	if err := show(ctx, l, *svg, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "overload: %v\n", err)
		return 1
	}
	return 0
}

func show(ctx context.Context, l load, svg string, stdout, stderr io.Writer) error {
	if svg != "" { // fail on a wrong path before the measurement
		f, err := os.OpenFile(svg, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	points, err := measureAll(ctx, l, stderr)
	if err != nil {
		return err
	}
	fmt.Fprint(stdout, tables(l, points))
	if svg == "" {
		return nil
	}
	return os.WriteFile(svg, []byte(plot(l, points)), 0o644)
}

func measureAll(ctx context.Context, l load, stderr io.Writer) (points []point, err error) {
	for _, of := range trials {
		fmt.Fprintf(stderr, "overload: threshold %s, %v\n", of, l.warmUp+l.measured)
		debug.FreeOSMemory() // so that the previous threshold leaves no memory behind
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
		}
		p, err := measure(ctx, l, of, listener, dial)
		if err != nil {
			return nil, err
		}
		points = append(points, p)
	}
	return points, nil
}

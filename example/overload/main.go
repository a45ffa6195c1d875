// Command overload sends a guarded handler ten times the load it can bear, once for each threshold, and prints what
// came of it as a Markdown table. With -svg FILE it draws the same. It talks to itself over the loopback only, and ends
// by itself in about half a minute.
//
//	go run ./example/overload -svg docs/tuning.svg
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/wllock/wllock"
)

const (
	hold     = 3 * time.Millisecond // what an order takes, with the lock
	overload = 10                   // times the orders that fit into a second
	patience = 2 * time.Second      // of a client
	warmUp   = 3 * time.Second      // longer than patience: a queue without a limit takes that long to go bad
	measured = 4 * time.Second
	rate     = overload * int(time.Second/hold) // requests per second
)

var thresholds = []int{0, 50, 500, wllock.Unlimited}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	svg := flag.String("svg", "", "`file` to draw the plot into; none without it")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "overload: unexpected argument %q: only flags are allowed\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := run(ctx, *svg); err != nil {
		fmt.Fprintf(os.Stderr, "overload: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, svg string) error {
	fmt.Printf("hold %v, %d requests per second, clients wait %v\n\n", hold, rate, patience)
	fmt.Println("| threshold | goodput/s | p99 of the accepted | refused/s | clients timed out/s | 5xx | work for nobody/s | peak heap |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	var points []point
	for _, n := range thresholds {
		p, err := measure(ctx, n)
		if err != nil {
			return err
		}
		points = append(points, p)
		fmt.Println(p.row())
	}
	if svg == "" {
		return nil
	}
	return os.WriteFile(svg, []byte(plot(points)), 0o644)
}

// point is what came of one threshold; the counts are of requests that began in the measured time.
type point struct {
	threshold                         int
	good, refused, timedOut, failures int
	wasted                            int // orders done whose clients had left
	p99                               time.Duration
	heap                              uint64
}

func (p point) title() string {
	if p.threshold == wllock.Unlimited {
		return "unlimited"
	}
	return strconv.Itoa(p.threshold)
}

func (p point) row() string {
	return fmt.Sprintf("| %s | %.0f | %s | %.0f | %.0f | %d | %.0f | %.0f MB |", p.title(), perSecond(p.good), p.wait(),
		perSecond(p.refused), perSecond(p.timedOut), p.failures, perSecond(p.wasted), float64(p.heap)/1e6)
}

func (p point) wait() string {
	if p.good == 0 {
		return "none accepted"
	}
	return fmt.Sprintf("%.0f ms", float64(p.p99)/1e6)
}

func perSecond(n int) float64 { return float64(n) / measured.Seconds() }

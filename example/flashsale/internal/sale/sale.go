// Package sale is the flash sale: it sells the same pieces to the same buyers in several ways, and asks the database what came of it.
//
// Read ways.go first, for the ways to sell, then sqlshop/order.go and batch.go, for the order and its fence (fencing token), and crew.go,
// for the buyers.
package sale

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/wllock/wllock/example/flashsale/internal/stores"
)

// Program is what a binary has beside the sale itself.
type Program struct {
	Stores []stores.Store                                                // lock services for -backend, beside memory
	Serve  func(ctx context.Context, s Settings, stderr io.Writer) error // -serve; nil: it has no page
}

// The exit statuses.
const (
	StatusOK          = 0
	StatusFailed      = 1 // wllock sold a piece twice, or the run failed
	StatusUsage       = 2
	StatusInterrupted = 130 // the status a shell reports for a program ended by SIGINT
)

// Main runs the program until it is done or interrupted, and ends the process.
func (p Program) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if IsChild() {
		os.Exit(p.serveParent(ctx, os.Stdin, os.Stdout))
	}
	os.Exit(p.Run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Run returns an exit status.
func (p Program) Run(ctx context.Context, args []string, stdout, stderr io.Writer) (status int) {
	s, err := p.parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return StatusOK
	case err != nil:
		fmt.Fprintf(stderr, "flashsale: %v\nflashsale -help shows all flags\n", err)
		return StatusUsage
	case s.Serve != "":
		if err = p.Serve(ctx, s, stderr); err == nil {
			return StatusOK
		}
	default:
		if status, err = compare(ctx, s, stdout, stderr); err == nil && ctx.Err() == nil {
			return status
		}
		if ctx.Err() != nil {
			fmt.Fprintln(stderr, "flashsale: interrupted")
			return StatusInterrupted
		}
	}
	fmt.Fprintf(stderr, "flashsale: %v\n", err)
	return StatusFailed
}

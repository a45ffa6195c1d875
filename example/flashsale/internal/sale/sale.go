// Package sale is the flash sale: it sells the same pieces to the same buyers in several ways, and asks the database what came of it.
//
// Read ways.go first, for the ways to sell, then sqlshop/order.go, for orders and their fences (fencing tokens), and crew.go, for buyers.
package sale

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

// Program is what a binary has beside the sale itself.
type Program struct {
	// Stores open lock services beside memory, by the schemes of their URLs. The first to open one creates what it needs.
	Stores  map[string]func(ctx context.Context, url string, first bool) (distributed.Observable, error)
	Allowed string                                                        // these URLs, for people
	Serve   func(ctx context.Context, s Settings, stderr io.Writer) error // -serve; nil: it has no page
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
		err = p.Serve(ctx, s, stderr)
	default:
		status, err = compare(ctx, s, stdout, stderr)
		if ctx.Err() != nil {
			fmt.Fprintln(stderr, "flashsale: interrupted")
			return StatusInterrupted
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "flashsale: %v\n", err)
		return StatusFailed
	}
	return status
}

// MemoryURL is that of the lock service that every program has.
const MemoryURL = "memory://"

// allowed lists the URLs of -backend.
func (p Program) allowed() string {
	if p.Stores == nil {
		return MemoryURL + " (inside one process), and in go run ./example/flashsale/full those of other lock services"
	}
	return MemoryURL + " (inside one process), " + p.Allowed
}

// OpenBackend opens the lock service. The first to do so creates what it needs.
func (s Settings) OpenBackend(ctx context.Context, first bool) (distributed.Observable, error) {
	if s.Backend == MemoryURL {
		return memlock.New(), nil
	}
	scheme, _, _ := strings.Cut(s.Backend, "://")
	return s.program.Stores[scheme](ctx, s.Backend, first)
}

// PrepareBackend creates what the lock service needs, and reports whether it answers. It is called once, before any process uses it.
func (s Settings) PrepareBackend(ctx context.Context) error {
	b, err := s.OpenBackend(ctx, true)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	return b.Ping(ctx)
}

// Command flashsale shows what wllock is for. It sells the same pieces to the same buyers in four rounds:
//
//   - without a lock: the shop sells more than it has;
//   - one tier: every buyer asks the lock service, as with a plain distributed lock;
//   - wllock: the buyers wait in the queue of their instance, and one of them asks for all;
//   - batches: the same, and one order takes along those that wait behind it.
//
// It needs only a Go toolchain: the database is SQLite in a temporary file, the lock service is in memory, a
// millisecond away (link.go).
//
//	go run ./example/flashsale
//
// Read rounds.go first, for the ways to sell, then shop.go, for the order and its fence (fencing token).
//
// With -serve a browser shows the rounds side by side, and has buttons to kill what they need. Read stage.go, then scene.go.
//
// With -db it compares five ways not to oversell on a database of your own. Read modes.go, then internal/sqlshop/order.go and batch.go.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// The exit statuses.
const (
	statusOK          = 0
	statusFailed      = 1 // wllock sold a piece twice, or the run failed
	statusUsage       = 2
	statusInterrupted = 130 // the status a shell reports for a program ended by SIGINT
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	switch os.Getenv(childVariable) {
	case "":
	case shopChild:
		return serveShop(ctx, stdin, stdout)
	default:
		return serveParent(ctx, stdin, stdout)
	}
	s, err := parseFlags(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return statusOK
	case err != nil:
		fmt.Fprintf(stderr, "flashsale: %v\nflashsale -help shows all flags\n", err)
		return statusUsage
	}
	if s.Serve != "" {
		if err := serve(ctx, s, stderr); err != nil {
			fmt.Fprintf(stderr, "flashsale: %v\n", err)
			return statusFailed
		}
		return statusOK
	}
	compareAll := compareRounds
	if s.DB != "" {
		compareAll = compareModes
	}
	status, err := compareAll(ctx, s, stdout, stderr)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "flashsale: interrupted")
		return statusInterrupted
	case err != nil:
		fmt.Fprintf(stderr, "flashsale: %v\n", err)
		return statusFailed
	}
	return status
}

func compareRounds(ctx context.Context, s settings, stdout, stderr io.Writer) (status int, err error) {
	reports, err := compare(ctx, s, newDisplay(stderr))
	if err != nil {
		return statusFailed, err
	}
	return conclude(s, reports, stdout, stderr), nil
}

// compare plays all rounds over one database.
func compare(ctx context.Context, s settings, show display) ([]report, error) {
	shop, file, remove, err := createShop(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	if err := migrateBackend(ctx, s.Backend); err != nil {
		return nil, err
	}
	backend, err := openBackend(s.Backend)
	if err != nil {
		return nil, err
	}
	defer func() { _ = backend.Close() }()
	if err := backend.Ping(ctx); err != nil {
		return nil, err
	}

	system := "flashsale-" + rand.Text()[:8] // unique, so that two runs do not interfere on one server
	var reports []report
	for i, r := range rounds {
		sell := func(m *meter) (result, error) {
			if s.Procs > 1 {
				return runProcs(ctx, task{Settings: s, Backend: s.Backend, System: system, Database: file, Round: i}, m)
			}
			c := &crew{settings: s, system: system, shop: shop, backend: backend, stride: 1}
			return c.run(ctx, r, m)
		}
		rep, err := play(ctx, s, r, shop, show, sell)
		if err != nil {
			return nil, err
		}
		reports = append(reports, rep)
	}
	return reports, nil
}

// play fills the stock, sells, and asks the database for the result.
func play(ctx context.Context, s settings, r round, shop *shop, show display, sell func(*meter) (result, error)) (report, error) {
	if err := shop.Stock(ctx, r.id, s.Stock); err != nil {
		return report{}, err
	}
	m := new(meter)
	stop := show.watch(r, s.Instances*s.Buyers, m)
	seen, err := sell(m)
	stop()
	if err != nil {
		return report{}, err
	}
	a, err := shop.Audit(ctx, r.id)
	return newReport(r, s.Stock, a, seen), err
}

// conclude prints the reports and returns an exit status that says whether wllock kept its promise.
func conclude(s settings, reports []report, stdout, stderr io.Writer) int {
	kept, served := true, true
	for _, r := range reports {
		kept = kept && (r.kept() || !r.fenced)
		served = served && (r.Failed == 0 || !r.fenced)
	}
	if s.JSON {
		out := json.NewEncoder(stdout)
		out.SetIndent("", "  ")
		_ = out.Encode(map[string]any{"settings": s, "rounds": reports, "verdict": verdict(reports), "ok": kept})
	} else {
		printTable(stdout, columns, reports, legend+aboutLink(s.RTT)+"\n"+wrapped(verdict(reports))+"\n")
	}
	for _, r := range reports {
		if r.Failure != "" {
			fmt.Fprintf(stderr, "flashsale: %s: %d failed, the first with: %s\n", r.Round, r.Failed, r.Failure)
		}
	}
	for _, r := range reports {
		if r.fenced && !r.kept() {
			fmt.Fprintf(stderr, "flashsale: %s did not keep its promise: %d pieces oversold, %d in stock besides %d orders of %d, "+
				"%d fences out of order\n", r.Round, r.Oversold, r.Left, r.Sold, s.Stock, r.FenceViolations)
		}
	}
	if !kept || !served {
		return statusFailed
	}
	return statusOK
}

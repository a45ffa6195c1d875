package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings are the values of the flags.
type settings struct {
	Backend   string        `json:"-"` // its URL may hold a password
	Instances int           `json:"instances"`
	Buyers    int           `json:"buyers"` // per instance
	Stock     int           `json:"stock"`
	Threshold int           `json:"threshold"`
	Wait      time.Duration `json:"wait_ns"`
	Ramp      time.Duration `json:"ramp_ns"`
	Procs     int           `json:"procs"`
	JSON      bool          `json:"-"`
	Serve     string        `json:"-"` // listen address; "": compare the rounds
}

const usage = `Usage: flashsale [flags]

Sells the same pieces three times to the same buyers (without a lock, with a distributed lock alone, with wllock) and
prints what the database says about it. Needs nothing installed: the database is SQLite in a temporary file, the lock
service is in memory unless -backend names another.

With -serve it is one server of the shop instead, until it is interrupted: for your own load, and for Prometheus.

Exit status: 0 wllock sold no piece twice, 1 it did or the run failed, 2 a wrong flag, 130 interrupted.

Flags:
`

// parseFlags returns flag.ErrHelp after printing the help to out. Any other error lists what is allowed.
func parseFlags(args []string, out io.Writer) (settings, error) {
	s := settings{
		Backend: memoryURL, Instances: 4, Buyers: 250, Stock: 100, Threshold: 50,
		Wait: 10 * time.Second, Ramp: 100 * time.Millisecond, Procs: 1,
	}
	flags := flag.NewFlagSet("flashsale", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed by main, once
	flags.Var(backendFlag{&s.Backend}, "backend", "`URL` of the lock service: "+backendsAllowed)
	flags.Var(numberFlag{&s.Instances, 1, 64}, "instances", "`number` of shop servers, each with its own Locker")
	flags.Var(numberFlag{&s.Buyers, 1, 10_000}, "buyers", "`number` of buyers per instance; each wants one piece")
	flags.Var(numberFlag{&s.Stock, 1, 1_000_000}, "stock", "`number` of pieces in stock")
	flags.Var(numberFlag{&s.Threshold, 0, 1_000_000}, "threshold", "`number` of buyers that may wait per instance; others are refused at once")
	flags.Var(durationFlag{&s.Wait, time.Millisecond, time.Minute}, "wait", "longest `duration` that a buyer waits before \"try later\"")
	flags.Var(durationFlag{&s.Ramp, 0, time.Minute}, "ramp", "`duration` over which the buyers arrive, evenly; 0: all at once")
	flags.Var(numberFlag{&s.Procs, 1, 64}, "procs", "`number` of real processes over which the instances are spread; more than 1 needs a shared backend")
	flags.BoolVar(&s.JSON, "json", false, "print the result as JSON")
	flags.Var(addressFlag{&s.Serve}, "serve", "`address` to serve the shop on instead, as in 127.0.0.1:8080: /orders/1000, /metrics, /debug/wllock")

	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(out, usage)
		flags.SetOutput(out)
		flags.PrintDefaults()
	}
	if err != nil {
		return settings{}, err
	}
	if flags.NArg() > 0 {
		return settings{}, fmt.Errorf("unexpected argument %q: only flags are allowed", flags.Arg(0))
	}
	if s.Serve != "" {
		return s, onlyServing(flags)
	}
	return s, s.fit(isSet(flags, "instances"))
}

// onlyServing refuses flags that have no effect on a server.
func onlyServing(flags *flag.FlagSet) (err error) {
	flags.Visit(func(f *flag.Flag) {
		if !slices.Contains([]string{"serve", "backend", "stock", "threshold", "wait"}, f.Name) {
			err = errors.Join(err, fmt.Errorf("-%s is for the rounds: allowed with -serve: -backend, -stock, -threshold and -wait", f.Name))
		}
	})
	return err
}

// fit checks combinations of flags. With more processes than instances, each process gets one, unless -instances was
// set.
func (s *settings) fit(instancesSet bool) error {
	if s.Procs > 1 && s.Backend == memoryURL {
		return fmt.Errorf("-procs %d needs a -backend that processes share; %s is inside one process: "+
			"allowed with it: -procs 1", s.Procs, memoryURL)
	}
	if s.Procs <= s.Instances {
		return nil
	}
	if instancesSet {
		return fmt.Errorf("-procs %d with -instances %d: allowed: at most one process per instance", s.Procs, s.Instances)
	}
	s.Instances = s.Procs
	return nil
}

func isSet(flags *flag.FlagSet, name string) (set bool) {
	flags.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// numberFlag is a whole number within bounds that its error names.
type numberFlag struct {
	to       *int
	min, max int
}

func (f numberFlag) String() string {
	if f.to == nil { // package flag calls String on a zero value
		return ""
	}
	return strconv.Itoa(*f.to)
}

func (f numberFlag) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < f.min || n > f.max {
		return fmt.Errorf("allowed: a whole number from %d to %d", f.min, f.max)
	}
	*f.to = n
	return nil
}

// durationFlag is a duration within bounds that its error names.
type durationFlag struct {
	to       *time.Duration
	min, max time.Duration
}

func (f durationFlag) String() string {
	if f.to == nil {
		return ""
	}
	return f.to.String()
}

func (f durationFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < f.min || d > f.max {
		return fmt.Errorf("allowed: a duration from %v to %v, as in 250ms or 10s", f.min, f.max)
	}
	*f.to = d
	return nil
}

// backendFlag is the URL of a lock service. Its error omits the rest of the URL, which may contain a password.
type backendFlag struct{ to *string }

func (f backendFlag) String() string {
	if f.to == nil {
		return ""
	}
	return *f.to
}

func (f backendFlag) Set(text string) error {
	if scheme, _, ok := strings.Cut(text, "://"); !ok || !knownScheme(scheme) {
		return errors.New("allowed: " + backendsAllowed)
	}
	*f.to = text
	return nil
}

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
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
	RTT       time.Duration `json:"rtt_ns"` // of a request to the lock service, besides what it takes anyway
	Procs     int           `json:"procs"`
	JSON      bool          `json:"-"`
	Serve     string        `json:"-"` // listen address; "": compare the rounds

	TTL time.Duration `json:"ttl_ns,omitzero"` // of leases; 0: leaseTTL

	DB     string        `json:"-"` // URL of a database, which may hold a password; "": compare the rounds, not the modes
	Modes  []string      `json:"modes,omitzero"`
	Pools  []int         `json:"pools,omitzero"`  // sizes to try, in connections per process
	Rounds int           `json:"rounds,omitzero"` // per mode and size
	Think  time.Duration `json:"think_ns,omitzero"`
}

// networkRTT is a round trip between two machines of a data centre, with a proxy or two on the way.
const networkRTT = time.Millisecond

const usage = `Usage: flashsale [flags]

Sells the same pieces four times to the same buyers (without a lock, with a distributed lock alone, with wllock, with wllock
in batches) and prints what the database says about it. Needs nothing installed: the database is SQLite in a temporary file, the lock
service is in memory unless -backend names another. Each request to it takes a millisecond more than it does here, as over
a network; -rtt 0 leaves that out.

A -backend that is a database keeps its locks in tables of its own, wllock_*, which are created if they are missing.

With -db it sells in a database of your own instead, in each of the -mode named (each with every -pool): none (read, then
write), and five ways not to oversell: optimistic (a version column), pessimistic (SELECT ... FOR UPDATE), statement
(UPDATE ... WHERE qty > 0), lock (wllock over -backend), batch (the same, one transaction for up to 64 buyers). It drops
and creates its tables flashsale_stock and flashsale_orders there, and touches no other; one run at a time.

With -serve it shows the rounds side by side in a browser, until it is interrupted: start a sale, kill the lock service or a shop
in the middle, and see what comes of it. That starts a redis-server and three shops as processes; -backend names another
lock service. It is a server of the shop, too: POST /orders/1000 for your own load, GET /metrics for Prometheus. With
-db as well several servers share one stock: the first one creates what is missing, and none drops anything. -db FILE is
all they need: their locks are in FILE.locks unless -backend names a lock service.

Exit status: 0 no piece was sold twice but by "no lock" and "none", 1 one was or the run failed, 2 a wrong flag, 130 interrupted.

Flags:
`

// parseFlags returns flag.ErrHelp after printing the help to out. Any other error lists what is allowed.
func parseFlags(args []string, out io.Writer) (settings, error) {
	s := settings{
		Backend: memoryURL, Instances: 4, Buyers: 250, Stock: 100, Threshold: 50,
		Wait: 10 * time.Second, Ramp: 100 * time.Millisecond, RTT: networkRTT, Procs: 1,
		Modes: strings.Split(modesAllowed, ", "), Pools: []int{1, 4, 16}, Rounds: 1, Think: thinking,
	}
	flags := flag.NewFlagSet("flashsale", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed by main, once
	flags.StringVar(&s.Backend, "backend", s.Backend, "`URL` of the lock service: "+backendsAllowed)
	flags.Var(numberFlag{&s.Instances, 1, 64}, "instances", "`number` of shop servers, each with its own Locker")
	flags.Var(numberFlag{&s.Buyers, 1, 10_000}, "buyers", "`number` of buyers per instance; each wants one piece")
	flags.Var(numberFlag{&s.Stock, 1, 1_000_000}, "stock", "`number` of pieces in stock")
	flags.Var(numberFlag{&s.Threshold, 0, 1_000_000}, "threshold", "`number` of buyers that may wait per instance; others are refused at once")
	flags.Var(durationFlag{&s.Wait, time.Millisecond, time.Minute}, "wait", "longest `duration` that a buyer waits before \"try later\"")
	flags.Var(durationFlag{&s.Ramp, 0, time.Minute}, "ramp", "`duration` over which the buyers arrive, evenly; 0: all at once")
	flags.Var(durationFlag{&s.RTT, 0, time.Second}, "rtt", "`duration` that a request to the lock service takes more than here, as over a network; 0 with -db unless set")
	flags.Var(numberFlag{&s.Procs, 1, 64}, "procs", "`number` of real processes over which the instances are spread; more than 1 needs a shared backend")
	flags.BoolVar(&s.JSON, "json", false, "print the result as JSON")
	flags.Var(addressFlag{&s.Serve}, "serve", "`address` to serve a page on that shows the rounds side by side, as in :8080 (this machine only) or 0.0.0.0:8080 (everybody)")
	s.dbFlags(flags)

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
	s.DB = withScheme(s.DB)
	if err := errors.Join(s.checkURLs(), s.onlyWithDB(flags)); err != nil {
		return settings{}, err
	}
	if s.DB != "" && s.Serve == "" && !isSet(flags, "rtt") {
		s.RTT = 0 // the way to the database is as it is, and so is the way to the lock service
	}
	if s.Serve != "" {
		return s, errors.Join(s.fitServing(isSet(flags, "backend")), onlyServing(flags))
	}
	return s, s.fit(isSet(flags, "instances"))
}

// onlyServing refuses flags that have no effect on a server.
func onlyServing(flags *flag.FlagSet) (err error) {
	flags.Visit(func(f *flag.Flag) {
		if !slices.Contains([]string{"serve", "backend", "db", "stock", "threshold", "wait", "rtt"}, f.Name) {
			err = errors.Join(err, fmt.Errorf("-%s is for the rounds: allowed with -serve: -backend, -db, -stock, -threshold and -wait", f.Name))
		}
	})
	return err
}

// fitServing checks what servers may share: a database outlives the process, and so must the order of the fences in it. A
// file needs no server: the locks lie in a file beside it, because a file has one writer at a time.
func (s *settings) fitServing(backendSet bool) error {
	file, isFile := sqlshop.File(s.DB)
	switch {
	case s.DB == temporary:
		return errors.New("-serve has a temporary file without -db; allowed with it: FILE, sqlite:FILE, mysql://, postgres://")
	case s.DB != "" && s.Backend == memoryURL && isFile && !backendSet:
		locks, err := filepath.Abs(file + ".locks")
		s.Backend = (&url.URL{Scheme: "sqlite", Path: locks}).String()
		return err
	case s.DB != "" && s.Backend == memoryURL:
		return fmt.Errorf("-serve with -db needs a -backend that servers share; the fences of %s begin anew with each process", memoryURL)
	}
	return nil
}

// fit checks combinations of flags. With more processes than instances, each process gets one, unless -instances was
// set.
func (s *settings) fit(instancesSet bool) error {
	if s.Procs > 1 && s.Backend == memoryURL && (s.DB == "" || slices.ContainsFunc(s.Modes, locks)) {
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

// checkURLs is no flag.Value, because the error of a flag shows its value, and a URL may contain a password.
func (s *settings) checkURLs() error {
	if _, ok := serviceOf(s.Backend); !ok {
		return errors.New("-backend: allowed: " + backendsAllowed)
	}
	if s.DB == "" || s.DB == temporary {
		return nil
	}
	if err := sqlshop.Check(s.DB); err != nil {
		return fmt.Errorf("-db: %w", err)
	}
	return nil
}

package sale

import (
	"cmp"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// Settings are the values of the flags.
type Settings struct {
	Backend   string        `json:"backend,omitzero"` // its URL may hold a password: children are told, users are not
	Instances int           `json:"instances"`
	Buyers    int           `json:"buyers"` // per instance
	Stock     int           `json:"stock"`
	Threshold int           `json:"threshold"`
	Wait      time.Duration `json:"wait_ns"`
	Ramp      time.Duration `json:"ramp_ns"`
	RTT       time.Duration `json:"rtt_ns"` // of a request to the lock service, besides what it takes anyway
	TTL       time.Duration `json:"ttl_ns"` // of leases
	Procs     int           `json:"procs"`
	JSON      bool          `json:"-"`
	Serve     string        `json:"-"`               // listen address; "": compare the rounds
	Names     []string      `json:"-"`               // hosts that are served besides addresses and localhost
	DB        string        `json:"-"`               // URL of a database, which may hold a password; "": compare the rounds, not the modes
	Modes     []string      `json:"modes,omitzero"`  // nil: without DB
	Pools     []int         `json:"pools,omitzero"`  // sizes to try, in connections per process
	Rounds    int           `json:"rounds,omitzero"` // per mode and size
	Think     time.Duration `json:"think_ns"`        // what an order does between reading the stock and writing it

	program *Program
}

// leaseTTL is the default of a Locker, so that all rounds with a lock use the same.
const leaseTTL = 5 * time.Second

//go:embed usage.txt
var usage string

// define makes the flags, with their defaults.
func (s *Settings) define(flags *flag.FlagSet) {
	number := func(to *int, name string, otherwise, least, most int, about string) {
		add(flags, to, name, otherwise, within(strconv.Atoi, least, most, "a whole number from %d to %d"), about)
	}
	duration := func(to *time.Duration, name string, otherwise, least, most time.Duration, about string) {
		add(flags, to, name, otherwise, within(time.ParseDuration, least, most, "a duration from %v to %v, as in 250ms or 10s"), about)
	}
	flags.StringVar(&s.Backend, "backend", MemoryURL, "`URL` of the lock service: "+s.program.allowed())
	number(&s.Instances, "instances", 4, 1, 64, "`number` of shop servers, each with its own Locker")
	number(&s.Buyers, "buyers", 250, 1, 10_000, "`number` of buyers per instance; each wants one piece")
	number(&s.Stock, "stock", 100, 1, 1_000_000, "`number` of pieces in stock")
	number(&s.Threshold, "threshold", 50, 0, 1_000_000, "`number` of buyers that may wait per instance; others are refused at once")
	duration(&s.Wait, "wait", 10*time.Second, time.Millisecond, time.Minute, "longest `duration` that a buyer waits before \"try later\"")
	duration(&s.TTL, "ttl", leaseTTL, time.Second, time.Minute, "`duration` after which the lock of a shop that has died is free")
	duration(&s.Ramp, "ramp", 100*time.Millisecond, 0, time.Minute, "`duration` over which the buyers arrive, evenly; 0: all at once")
	duration(&s.RTT, "rtt", time.Millisecond, 0, time.Second, // between two machines of a data centre, with a proxy or two on the way
		"`duration` that a request to the lock service takes more than here, as over a network; 0 with -db unless set")
	number(&s.Procs, "procs", 1, 1, 64, "`number` of real processes over which the instances are spread; more than 1 needs a shared backend")
	flags.BoolVar(&s.JSON, "json", false, "print the result as JSON")
	add(flags, &s.Serve, "serve", "", address,
		"`address` to serve a page on that shows the rounds side by side, as in :8080 (this machine only) or 0.0.0.0:8080 (everybody)")
	add(flags, &s.Names, "names", nil, func(text string) ([]string, error) { return strings.Split(text, ","), nil },
		"host `names` that browsers may call the server by, as in shop.example,shop: besides addresses and localhost")

	flags.StringVar(&s.DB, "db", "", "`URL` of a database to compare the modes on: "+sqlshop.Allowed)
	add(flags, &s.Modes, "mode", titles(modes), modeList, "with -db: `modes` to compare, of "+strings.Join(titles(modes), ", "))
	add(flags, &s.Pools, "pool", []int{1, 4, 16}, poolList,
		"with -db: `numbers` of connections per process to try, as in 4,16; the best is shown")
	number(&s.Rounds, "rounds", 1, 1, 100, "with -db: `number` of rounds of each mode and pool; the median is shown")
	duration(&s.Think, "think", time.Millisecond, 0, time.Second, "with -db: `duration` of an order's work between reading and writing")
}

// add makes a flag. The error of its parser says what is allowed.
func add[T any](flags *flag.FlagSet, to *T, name string, otherwise T, parse func(string) (T, error), about string) {
	if text := strings.ReplaceAll(strings.Trim(fmt.Sprint(otherwise), "[]"), " ", ","); text != "" {
		about += fmt.Sprintf(" (default %s)", text)
	}
	*to = otherwise
	flags.Func(name, about, func(text string) (err error) {
		*to, err = parse(text)
		return err
	})
}

// parse returns flag.ErrHelp after printing the help to out. Any other error lists what is allowed.
func (p Program) parse(args []string, out io.Writer) (Settings, error) {
	s := Settings{program: &p}
	flags := flag.NewFlagSet("flashsale", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed by Run, once
	s.define(flags)
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(out, usage)
		flags.SetOutput(out)
		flags.PrintDefaults()
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q: only flags are allowed", flags.Arg(0))
	}
	set := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
	for _, check := range []func(map[string]bool) error{s.checkEffect, s.checkDB, s.checkTogether} {
		if err == nil {
			err = check(set)
		}
	}
	s.Instances = max(s.Instances, s.Procs) // each process gets one
	return s, err
}

// checkEffect refuses flags that have no effect beside the others.
func (s *Settings) checkEffect(set map[string]bool) (err error) {
	for name := range set {
		switch {
		case s.DB == "" && slices.Contains([]string{"mode", "pool", "rounds", "think"}, name):
			err = errors.Join(err, fmt.Errorf("-%s needs -db: allowed: %s", name, sqlshop.Allowed))
		case s.Serve != "" && !slices.Contains(strings.Fields("serve backend db stock threshold wait ttl rtt names"), name):
			err = errors.Join(err, fmt.Errorf("-%s is for the rounds: "+
				"allowed with -serve: -backend, -db, -stock, -threshold, -wait, -ttl and -names", name))
		}
	}
	return err
}

// checkDB completes the URL of the database; without one it forgets the defaults of flags for it. It is no parser of a flag, because the
// error of a flag shows its value, and a URL may contain a password.
func (s *Settings) checkDB(set map[string]bool) error {
	if s.DB == "" {
		s.Modes, s.Pools, s.Rounds = nil, nil, 0
		return nil
	}
	if s.Serve == "" && !set["rtt"] {
		s.RTT = 0 // the way to the database is as it is, and so is the way to the lock service
	}
	if strings.ContainsAny(s.DB, "./\\") && !strings.Contains(s.DB, ":") { // a word without these is more likely a mistake than a file
		s.DB = "sqlite:" + s.DB
	}
	if err := sqlshop.Check(s.DB); err != nil {
		return fmt.Errorf("-db: %w", err)
	}
	return nil
}

// checkTogether refuses combinations of flags. Servers share a database, which outlives the process, and so must the order of the fences in
// it. A file needs no lock service: the locks lie in a file beside it, because a file has one writer at a time.
func (s *Settings) checkTogether(set map[string]bool) (err error) {
	file, isFile := sqlshop.File(s.DB)
	if s.Serve != "" && isFile && !set["backend"] {
		file, err = filepath.Abs(file + ".locks")
		s.Backend = (&url.URL{Scheme: "sqlite", Path: file}).String()
	}
	scheme, _, _ := strings.Cut(s.Backend, "://")
	alone := s.Backend == MemoryURL
	needsLock := s.DB == "" || slices.ContainsFunc(s.Modes, func(mode string) bool { return wayOf(mode).Locked })
	switch {
	case s.Serve != "" && s.program.Serve == nil:
		err = fmt.Errorf("-serve needs the page, which this program does not have: go run ./example/flashsale/full -serve %s", s.Serve)
	case s.Serve != "" && s.DB == sqlshop.Temporary:
		err = errors.New("-serve has a temporary file without -db; allowed with it: FILE, sqlite:FILE, mysql://, postgres://")
	case s.Serve != "" && s.DB != "" && alone:
		err = fmt.Errorf("-serve with -db needs a -backend that servers share; the fences of %s begin anew with each process", MemoryURL)
	case s.Procs > 1 && alone && needsLock:
		err = fmt.Errorf("-procs %d needs a -backend that processes share; %s is inside one process: "+
			"allowed with it: -procs 1", s.Procs, MemoryURL)
	case s.Procs > s.Instances && set["instances"]:
		err = fmt.Errorf("-procs %d with -instances %d: allowed: at most one process per instance", s.Procs, s.Instances)
	case !alone && s.program.Stores[scheme] == nil:
		err = errors.New("-backend: allowed: " + s.program.allowed()) // without the URL, which may have a password
	}
	return err
}

// within refuses values out of bounds, and says what is allowed, with both.
func within[T cmp.Ordered](parse func(string) (T, error), least, most T, allowed string) func(string) (T, error) {
	return func(text string) (T, error) {
		v, err := parse(text)
		if err != nil || v < least || v > most {
			return v, fmt.Errorf("allowed: "+allowed, least, most)
		}
		return v, nil
	}
}

// address is one to listen on. Without a host it is this machine's own: who serves a page with buttons to everybody says so.
func address(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" {
		return "", errors.New("allowed: host:port, or :port for this machine only, as in :8080")
	}
	return net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port), nil
}

// modeList returns modes in the order of the table.
func modeList(text string) ([]string, error) {
	all, chosen := titles(modes), strings.Split(text, ",")
	for _, name := range chosen {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("no mode %q; allowed: %s, several with commas", name, strings.Join(all, ", "))
		}
	}
	return slices.DeleteFunc(all, func(name string) bool { return !slices.Contains(chosen, name) }), nil
}

func poolList(text string) (sizes []int, err error) {
	one := within(strconv.Atoi, 1, 1000, "whole numbers from %d to %d, several with commas") // more than most databases allow
	for size := range strings.SplitSeq(text, ",") {
		n, wrong := one(size)
		sizes, err = append(sizes, n), cmp.Or(err, wrong)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes), err
}

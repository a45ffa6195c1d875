package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/load"
)

// The default lasts about 20 minutes, -quick three.
const (
	defaultDuration = time.Second
	defaultRounds   = 3
	quickDuration   = 300 * time.Millisecond
	quickRounds     = 1
)

// plan is the result of the flags.
type plan struct {
	jobs       []job
	contenders []contender.Contender
	duration   time.Duration
	rounds     int
	out        string
	data       string
	command    string // that makes the results again
}

// job is one scenario over one link.
type job struct {
	scenario load.Scenario
	link     load.Link
}

// choice is what a flag chooses from.
type choice[T any] struct {
	what  string // the flag's name without its s
	all   []T
	words func(T) []string // by which one is chosen, first its name
}

var (
	groups = choice[contender.Group]{"group", contender.Groups(), func(g contender.Group) []string { return []string{g.String(), "all"} }}
	jobs   = choice[job]{"scenario", allJobs(), func(j job) []string {
		return []string{j.scenario.Name, j.scenario.Name + "/" + string(j.link), "all"}
	}}
	contenders = choice[contender.Contender]{"contender", contender.All(), func(c contender.Contender) []string {
		if c.Variant {
			return []string{c.Name}
		}
		return []string{c.Name, "all"}
	}}
)

func allJobs() (all []job) {
	for _, s := range load.Scenarios() {
		for _, link := range s.Links {
			all = append(all, job{s, link})
		}
	}
	return all
}

// names lists all; some contenders take part in several groups, and some scenarios run over two links.
func (c choice[T]) names() string {
	var names []string
	for _, one := range c.all {
		if name := c.words(one)[0]; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// pick returns those that a comma-separated list has words for, in the order of all.
func (c choice[T]) pick(list string) ([]T, error) {
	wanted := strings.Split(list, ",")
	for _, word := range wanted {
		if !slices.ContainsFunc(c.all, func(one T) bool { return slices.Contains(c.words(one), word) }) {
			return nil, fmt.Errorf("-%ss: no %s %q; there are: all, %s", c.what, c.what, word, c.names())
		}
	}
	return filter(c.all, func(one T) bool {
		return slices.ContainsFunc(c.words(one), func(word string) bool { return slices.Contains(wanted, word) })
	}), nil
}

func filter[T any](all []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !keep(one) })
}

// parse reads the command line. Its errors are for the user; flag.ErrHelp means that help was requested and printed.
func parse(args []string, help io.Writer) (plan, error) {
	var p plan
	set := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	groupList := set.String("groups", "all", "comma-separated: "+groups.names()+"; each has results of its own")
	scenarioList := set.String("scenarios", "all", "comma-separated names, of one link with name/loopback, name/warm or name/0.5ms")
	contenderList := set.String("contenders", "all", "comma-separated names; variants take part only when named")
	set.DurationVar(&p.duration, "duration", defaultDuration, "measured time of a round")
	set.IntVar(&p.rounds, "rounds", defaultRounds, "rounds of each contender in each scenario")
	quick := set.Bool("quick", false, fmt.Sprintf("one round of %v unless -duration or -rounds say otherwise", quickDuration))
	set.StringVar(&p.out, "out", "results", "folder for the results of each group (.json, .md) and the plots")
	set.StringVar(&p.data, "data", "", "folder for the files of servers (default in memory where there is a folder for that; group batch: the folder for temporary files)")
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			usage(set, help)
		}
		return p, err
	}
	if *quick {
		p.duration, p.rounds = quickDuration, quickRounds
		_ = set.Parse(args) // what they say otherwise
	}
	p.command = command(args)
	if err := p.check(set); err != nil {
		return p, err
	}
	return p, p.choose(*groupList, *scenarioList, *contenderList)
}

func (p *plan) check(set *flag.FlagSet) error {
	switch {
	case set.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	case p.duration < 10*time.Millisecond:
		return fmt.Errorf("-duration %v: want 10ms or more", p.duration)
	case p.rounds < 1:
		return fmt.Errorf("-rounds %d: want 1 or more", p.rounds)
	}
	return nil
}

// choose takes the scenarios that are named and in the chosen groups, and of the contenders those that have one to take part in.
func (p *plan) choose(groupList, scenarioList, contenderList string) error {
	chosen, err := groups.pick(groupList)
	named, err2 := jobs.pick(scenarioList)
	all, err3 := contenders.pick(contenderList)
	if err = errors.Join(err, err2, err3); err != nil {
		return err
	}
	p.jobs = filter(named, func(j job) bool { return slices.Contains(chosen, j.scenario.Group) })
	if len(p.jobs) == 0 {
		return fmt.Errorf("-scenarios: none of %s is in the chosen groups", scenarioList)
	}
	p.contenders = filter(all, func(c contender.Contender) bool { return slices.Contains(p.groups(), c.Group) })
	for _, g := range p.groups() {
		if len(p.of(g).contenders) == 0 {
			return fmt.Errorf("-contenders: none of them takes part in the scenarios of group %v", g)
		}
	}
	return nil
}

// groups are those with a job, in the order of a run.
func (p plan) groups() []contender.Group {
	return filter(contender.Groups(), func(g contender.Group) bool { return len(p.of(g).jobs) > 0 })
}

// of returns the part of the plan that is one group's.
func (p plan) of(g contender.Group) plan {
	p.jobs = filter(p.jobs, func(j job) bool { return j.scenario.Group == g })
	p.contenders = filter(p.contenders, func(c contender.Contender) bool { return c.Group == g })
	return p
}

// command returns the one that runs the program with these arguments.
func command(args []string) string {
	if len(args) == 0 {
		return "make bench"
	}
	return "make bench BENCHFLAGS='" + strings.Join(args, " ") + "'"
}

// diskFolder is the one for temporary files, as it was before this program changed it for others.
var diskFolder = os.TempDir()

// dataOf returns the folder for the files of a group's servers. Orders are to last, so what their commits cost is part of the comparison.
// Otherwise it is in memory, where a sync costs nothing and other work on the machine's disk does not count; "": there is none, and the
// files are on a disk.
func (p plan) dataOf(g contender.Group) string {
	const memory = "/dev/shm"
	info, err := os.Stat(memory)
	switch {
	case p.data != "":
		return p.data
	case g == contender.OverBatch:
		return diskFolder
	case err == nil && info.IsDir():
		return memory
	}
	return ""
}

func usage(set *flag.FlagSet, w io.Writer) {
	fmt.Fprintln(w, "benchmarks compares wllock with other locks over servers that it starts itself.")
	set.SetOutput(w)
	set.PrintDefaults()
	fmt.Fprintf(w, "scenarios: %s\n", jobs.names())
	fmt.Fprintf(w, "contenders: %s\n", contenders.names())
}

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

// job is one scenario over one link.
type job struct {
	scenario load.Scenario
	link     load.Link
}

// plan is the result of the flags.
type plan struct {
	jobs       []job
	contenders []contender.Contender
	duration   time.Duration
	rounds     int
	out        string
	data       string
	cpuProfile string
	command    string // that makes the results again
}

// parse reads the command line. Its errors are for the user; flag.ErrHelp means that help was requested and printed.
func parse(args []string, help io.Writer) (plan, error) {
	var p plan
	set := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	groups := set.String("groups", "all", "comma-separated: "+groupNames()+"; each has results of its own")
	scenarios := set.String("scenarios", "all", "comma-separated names, of one link with name/loopback or name/0.5ms")
	contenders := set.String("contenders", "all", "comma-separated names; variants take part only when named")
	set.DurationVar(&p.duration, "duration", defaultDuration, "measured time of a round")
	set.IntVar(&p.rounds, "rounds", defaultRounds, "rounds of each contender in each scenario")
	quick := set.Bool("quick", false, fmt.Sprintf("one round of %v unless -duration or -rounds say otherwise", quickDuration))
	set.StringVar(&p.out, "out", "results", "folder for the results of each group (.json, .md) and the plots")
	set.StringVar(&p.data, "data", "", "folder for the files of servers (default in memory where there is a folder for that; group batch: the folder for temporary files)")
	set.StringVar(&p.cpuProfile, "cpuprofile", "", "write a CPU profile of the whole run to this file")
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			usage(set, help)
		}
		return p, err
	}
	if *quick {
		p.hurry(set)
	}
	p.command = command(args)
	chosen, err := chooseGroups(*groups)
	return p, errors.Join(p.check(set), err, p.chooseJobs(chosen, *scenarios), p.chooseContenders(*contenders))
}

// dataOf returns the folder for the files of a group's servers. Orders are to last, so what their commits cost is part of the comparison.
func (p plan) dataOf(g contender.Group) string {
	switch {
	case p.data != "":
		return p.data
	case g == contender.OverBatch:
		return diskFolder
	}
	return memoryFolder()
}

// diskFolder is the one for temporary files, as it was before this program changed it for others.
var diskFolder = os.TempDir()

// memoryFolder returns a folder in memory, where a sync costs nothing and other work on the machine's disk does not count; "": there
// is none, and the servers' files are on a disk.
func memoryFolder() string {
	const shared = "/dev/shm"
	if info, err := os.Stat(shared); err != nil || !info.IsDir() {
		return ""
	}
	return shared
}

func (p *plan) hurry(set *flag.FlagSet) {
	given := make(map[string]bool)
	set.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["duration"] {
		p.duration = quickDuration
	}
	if !given["rounds"] {
		p.rounds = quickRounds
	}
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

// command returns the one that runs the program with these arguments.
func command(args []string) string {
	if len(args) == 0 {
		return "make bench"
	}
	return "make bench BENCHFLAGS='" + strings.Join(args, " ") + "'"
}

func chooseGroups(list string) ([]contender.Group, error) {
	if list == "all" {
		return contender.Groups(), nil
	}
	var chosen []contender.Group
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(contender.Groups(), func(g contender.Group) bool { return g.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("-groups: no group %q; there are: all, %s", name, groupNames())
		}
		chosen = append(chosen, contender.Groups()[i])
	}
	return chosen, nil
}

// groups are those with a job, in the order of a run.
func (p *plan) groups() []contender.Group {
	return slices.DeleteFunc(contender.Groups(), func(g contender.Group) bool { return len(p.of(g).jobs) == 0 })
}

// of returns the part of the plan that is one group's.
func (p plan) of(g contender.Group) plan {
	all := p
	p.jobs, p.contenders = nil, nil
	for _, j := range all.jobs {
		if j.scenario.Group == g {
			p.jobs = append(p.jobs, j)
		}
	}
	for _, c := range all.contenders {
		if c.Group == g {
			p.contenders = append(p.contenders, c)
		}
	}
	return p
}

func (p *plan) chooseJobs(groups []contender.Group, list string) error {
	wanted := strings.Split(list, ",")
	used := make([]bool, len(wanted))
	for _, s := range load.Scenarios() {
		for _, link := range s.Links {
			for i, name := range wanted {
				if name == "all" || name == s.Name || name == s.Name+"/"+string(link) {
					used[i] = true
					if slices.Contains(groups, s.Group) {
						p.jobs = append(p.jobs, job{s, link})
					}
					break
				}
			}
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return fmt.Errorf("-scenarios: no scenario %q; there are: all, %s", wanted[i], strings.Join(scenarioNames(), ", "))
	}
	if len(p.jobs) == 0 {
		return fmt.Errorf("-scenarios: none of %s is in the chosen groups", list)
	}
	return nil
}

func (p *plan) chooseContenders(list string) error {
	groups := p.groups()
	wanted := strings.Split(list, ",")
	used := make([]bool, len(wanted))
	for _, c := range contender.All() {
		for i, name := range wanted {
			if name == c.Name || name == "all" && !c.Variant {
				used[i] = true
				if slices.Contains(groups, c.Group) {
					p.contenders = append(p.contenders, c)
				}
				break
			}
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return fmt.Errorf("-contenders: no contender %q; there are: all, %s", wanted[i], strings.Join(contenderNames(), ", "))
	}
	for _, g := range groups {
		if len(p.of(g).contenders) == 0 {
			return fmt.Errorf("-contenders: none of them takes part in the scenarios of group %v", g)
		}
	}
	return nil
}

func groupNames() string {
	var names []string
	for _, g := range contender.Groups() {
		names = append(names, g.String())
	}
	return strings.Join(names, ", ")
}

func scenarioNames() []string {
	var names []string
	for _, s := range load.Scenarios() {
		names = append(names, s.Name)
	}
	return names
}

func contenderNames() []string {
	var names []string
	for _, c := range contender.All() {
		if !slices.Contains(names, c.Name) { // some take part in several groups
			names = append(names, c.Name)
		}
	}
	return names
}

func usage(set *flag.FlagSet, w io.Writer) {
	fmt.Fprintln(w, "benchmarks compares wllock with other locks over servers that it starts itself.")
	set.SetOutput(w)
	set.PrintDefaults()
	fmt.Fprintf(w, "scenarios: %s\n", strings.Join(scenarioNames(), ", "))
	fmt.Fprintf(w, "contenders: %s\n", strings.Join(contenderNames(), ", "))
}

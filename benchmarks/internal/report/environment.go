package report

import (
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/load"
	"github.com/wllock/wllock/benchmarks/internal/stats"
)

// Environment is where and how a run took place.
type Environment struct {
	Time     time.Time                   `json:"time"`
	Go       string                      `json:"go"`
	System   string                      `json:"system"`
	CPU      string                      `json:"cpu"`
	Cores    int                         `json:"cores"`
	Load     string                      `json:"load_average"` // of the last minute, before the run: should be near 0
	Servers  []string                    `json:"servers"`
	Command  string                      `json:"command,omitempty"` // that makes the results again
	Data     string                      `json:"data,omitempty"`    // folder of the servers' files
	Duration time.Duration               `json:"duration_ns"`
	Rounds   int                         `json:"rounds"`
	Ping     map[load.Link]stats.Summary `json:"ping"` // one caller in an idle process
}

// New returns a report without tables, from this machine and build.
func New(g contender.Group, cs []contender.Contender) Report {
	r := Report{Name: g.String(), Title: g.Title(), Contenders: participants(cs), Environment: Environment{
		Time: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH,
		CPU: find("/proc/cpuinfo", `(?m)^model name\s*: (.*)$`), Load: find("/proc/loadavg", `^(\S+)`),
		Cores: runtime.GOMAXPROCS(0), Ping: make(map[load.Link]stats.Summary),
	}}
	if g == contender.OverRedis {
		r.Name = "results"
	}
	return r
}

// find returns what a pattern finds in a file.
func find(path, pattern string) string {
	text, _ := os.ReadFile(path)
	if found := regexp.MustCompile(pattern).FindSubmatch(text); found != nil {
		return string(found[1])
	}
	return "unknown"
}

// Busy reports whether other work took a good part of a core before the run.
func (e Environment) Busy() bool {
	load, err := strconv.ParseFloat(e.Load, 64)
	return err == nil && load > 0.5
}

// participants describes the contenders of a run.
func participants(cs []contender.Contender) []Participant {
	versions := make(map[string]string)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			versions[m.Path] = m.Version
		}
	}
	versions["github.com/wllock/wllock"] = "this repository"
	all := make([]Participant, len(cs))
	for i, c := range cs {
		all[i] = Participant{Name: c.Name, Module: c.Module, Version: versions[c.Module], Settings: c.Settings}
	}
	return all
}

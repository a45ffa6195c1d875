package report

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
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

// Here describes this machine and build.
func Here() Environment {
	return Environment{
		Time: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH,
		CPU: processor(), Load: loadAverage(), Cores: runtime.GOMAXPROCS(0), Ping: make(map[load.Link]stats.Summary),
	}
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// New returns a report of a group without tables.
func New(g contender.Group, cs []contender.Contender) Report {
	name, title := g.String(), titles[g]
	if g == contender.OverRedis {
		name = "results"
	}
	return Report{Name: name, Title: title, Environment: Here(), Contenders: Participants(cs)}
}

var titles = map[contender.Group]string{
	contender.OverRedis:     "Redis: wllock beside other locks",
	contender.OverRedlock:   "Redlock: wllock beside redsync on five Redis servers",
	contender.OverZooKeeper: "ZooKeeper: wllock beside the lock of the client library",
	contender.OverMySQL:     "MariaDB: wllock beside GET_LOCK and SELECT ... FOR UPDATE",
	contender.OverPostgres:  "PostgreSQL: wllock beside advisory locks and SELECT ... FOR UPDATE",
	contender.OverSQLite:    "SQLite: wllock beside BEGIN IMMEDIATE and flock",
	contender.OverEtcd:      "etcd: wllock beside concurrency.Mutex",
	contender.OverEach:      "All backends: wllock over each of them",
	contender.OverPermits:   "Permits: up to 8 holders at a time over all instances",
	contender.OverBatch:     "Batches: one product, sold one by one and in batches",
}

// Participants describes the contenders of a run.
func Participants(cs []contender.Contender) []Participant {
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

// busy reports whether other work took a good part of a core before the run.
func (e Environment) busy() bool {
	load, err := strconv.ParseFloat(e.Load, 64)
	return err == nil && load > 0.5
}

package report

import (
	"os"
	"runtime"
	"runtime/debug"
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
	Redis    string                      `json:"redis"`
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

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/load"
	"github.com/wllock/wllock/benchmarks/internal/report"
	"github.com/wllock/wllock/benchmarks/internal/server"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

func TestWrongFlagsEndWithStatusTwoAndSayWhatIsWrong(t *testing.T) {
	for arg, message := range map[string]string{
		"-rounds=0":          "-rounds 0: want 1 or more",
		"-rounds=many":       "invalid value",
		"-duration=1ms":      "-duration 1ms: want 10ms or more",
		"-scenarios=cold":    `no scenario "cold"; there are: all, hot-1x64`,
		"-contenders=mutex":  `no contender "mutex"; there are: all, wllock`,
		"-contenders=":       `no contender ""`,
		"-fast":              "not defined: -fast",
		"hot-8x16":           `unexpected argument "hot-8x16"`,
		"-scenarios=hot/1ms": `no scenario "hot/1ms"`,
		"-groups=nats":       `no group "nats"; there are: all, redis`,
	} {
		var out, errs bytes.Buffer
		assert.Equal(t, 2, run(t.Context(), []string{arg}, &out, &errs), arg)
		assert.Contains(t, errs.String(), message)
		assert.Empty(t, out.String())
	}
}

func TestHelp(t *testing.T) {
	var out, errs bytes.Buffer
	assert.Equal(t, 0, run(t.Context(), []string{"-help"}, &out, &errs))
	assert.Contains(t, out.String(), "-quick")
	assert.Contains(t, out.String(), "hot-8x16")
	assert.Contains(t, out.String(), "redsync-1ms")
	assert.Empty(t, errs.String())
}

func TestFlags(t *testing.T) {
	p, err := parse([]string{"-quick", "-rounds", "2", "-scenarios", "work-4x32,hot-8x16/0.5ms", "-contenders", "all,redsync-5ms"}, nil)
	require.NoError(t, err)
	assert.Equal(t, quickDuration, p.duration)
	assert.Equal(t, 2, p.rounds)
	require.Len(t, p.jobs, 2)
	assert.Equal(t, "hot-8x16", p.jobs[0].scenario.Name, "in the order of the results")
	assert.Equal(t, load.Delayed, p.jobs[0].link)
	assert.Equal(t, []server.Store{server.Redis, server.Memory, server.Redis}, slices.Compact(p.stores()), "a channel is in memory")
	assert.Equal(t, []string{"wllock", "redsync", "redsync-5ms", "redislock", "rueidislock", "wllock-java", "LPUSH+BLPOP", "SET NX+DEL", "channel", "PING", "ideal"}, names(p))
}

func TestGroupsHaveContendersAndScenariosOfTheirOwn(t *testing.T) {
	p, err := parse([]string{"-groups", "zookeeper,redlock", "-contenders", "wllock,redsync,zk.Lock,PING"}, nil)
	require.NoError(t, err)
	require.Equal(t, []contender.Group{contender.OverRedlock, contender.OverZooKeeper}, p.groups(), "in the order of a run")
	assert.Equal(t, []string{"wllock", "redsync", "PING"}, names(p.of(contender.OverRedlock)))
	assert.Equal(t, []string{"wllock", "zk.Lock"}, names(p.of(contender.OverZooKeeper)))
	assert.Equal(t, []server.Store{server.Redlock, server.ZooKeeper}, slices.Compact(p.stores()))

	_, err = parse([]string{"-groups", "redlock", "-scenarios", "hot-8x16"}, nil)
	require.ErrorContains(t, err, "none of hot-8x16 is in the chosen groups")
	_, err = parse([]string{"-groups", "redlock", "-contenders", "zk.Lock"}, nil)
	require.ErrorContains(t, err, "none of them takes part")
}

// Every service that is there for other purposes starts, serves wllock and what it is compared with, and counts requests.
func TestServicesHaveGroupsOfTheirOwn(t *testing.T) {
	if os.Getenv("WLLOCK_REQUIRE_SERVERS") != "1" {
		t.Skip("some of the servers may be missing: set WLLOCK_REQUIRE_SERVERS=1")
	}
	for group, c := range map[string]struct{ contenders, counted string }{
		"mysql":    {"wllock,GET_LOCK,FOR UPDATE,UPDATE", "GET_LOCK"},
		"postgres": {"wllock,advisory,advisory-tx,FOR UPDATE,UPDATE", "advisory"},
		"sqlite":   {"wllock,IMMEDIATE,flock,UPDATE", ""},
		"etcd":     {"wllock,Mutex,Put", "Put"},
		"backends": {"memcached,memcached-turns", "memcached-turns"},
		"batch":    {"batch-64,guard,statement-2,conditional-2,FOR UPDATE-2", "FOR UPDATE-2"},
	} {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			scenario := group + "-1x1"
			if other := map[string]string{"backends": "backends-8x16", "batch": "sale-postgres-4x64/loopback"}[group]; other != "" {
				scenario = other
			}
			var out, errs bytes.Buffer
			args := []string{"-groups", group, "-scenarios", scenario, "-contenders", c.contenders, "-duration", "200ms", "-rounds", "1", "-out", dir}
			require.Equal(t, 0, run(t.Context(), args, &out, &errs), "%s%s", &out, &errs)
			text, err := os.ReadFile(filepath.Join(dir, group+".json"))
			require.NoError(t, err)
			var r report.Report
			require.NoError(t, json.Unmarshal(text, &r))
			require.NotEmpty(t, r.Environment.Servers)
			for _, name := range r.Environment.Servers {
				assert.Regexp(t, `^[A-Za-z]+ \d+\.\d+`, name)
			}
			for _, row := range r.Tables[0].Rows {
				assert.Zero(t, row.Total.Failed, row.Contender)
				if row.Contender == c.counted && row.Total.OpsPerSecond.Median > 0 { // none where a disk stands still for a second
					assert.Greater(t, row.Total.CommandsPerOp, .9) // the last request may be answered, and not counted yet
				}
			}
		})
	}
}

func names(p plan) []string {
	var all []string
	for _, c := range p.contenders {
		all = append(all, c.Name)
	}
	return all
}

func TestLimitsAndFloorsFollowTheScenario(t *testing.T) {
	p, err := parse([]string{"-scenarios", "work-4x32,every-turn-8x16/loopback,free-1/warm,linger/loopback", "-contenders",
		"wllock,redsync,LPUSH+BLPOP,SET NX+DEL,PING,ideal"}, nil)
	require.NoError(t, err)
	of := func(i int) []string { return names(plan{contenders: p.participants(p.jobs[i])}) }
	assert.Equal(t, []string{"wllock", "redsync", "ideal"}, of(0))
	assert.Equal(t, []string{"wllock", "redsync", "LPUSH+BLPOP", "PING"}, of(1))
	assert.Equal(t, []string{"wllock", "redsync", "SET NX+DEL", "PING"}, of(2))
	assert.Equal(t, []string{"wllock", "PING"}, of(3), "rivals have no linger")
}

func needRedis(t *testing.T) {
	t.Helper()
	_, err := testproc.Find("redis-server")
	testproc.Need(t, err)
}

// A group has files of its own.
func TestAShortRunWritesAllFiles(t *testing.T) {
	testscope.Long(t, "plays whole sales or runs")
	needRedis(t)
	written := func(flags string) (dir string) {
		dir = filepath.Join(t.TempDir(), "results")
		var out, errs bytes.Buffer
		require.Equal(t, 0, run(t.Context(), append(strings.Fields(flags), "-duration", "50ms", "-out", dir), &out, &errs), "%s%s", &out, &errs)
		return dir
	}
	dir := written("-scenarios hot-8x16 -contenders wllock,redislock,PING -rounds 2")
	for _, name := range []string{"results.json", "results.md", "hot-8x16.svg"} {
		assert.FileExists(t, filepath.Join(dir, name))
	}
	dir = written("-groups redlock,backends -contenders wllock,redsync-5ms,memory,memory-turns -rounds 1")
	for _, name := range []string{"redlock.json", "redlock.md", "redlock-8x16.svg", "backends.md", "backends-8x16.svg"} {
		assert.FileExists(t, filepath.Join(dir, name))
	}
	assert.NoFileExists(t, filepath.Join(dir, "results.md"))
	text, err := os.ReadFile(filepath.Join(dir, "backends.md"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "-groups redlock,backends", "the command that makes it")
	assert.Regexp(t, `\| memory \|.*\| 0 \| grew [0-9,]+ times \|`, string(text))
}

func TestAnInterruptEndsTheRunSoon(t *testing.T) {
	needRedis(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "results")
	var out, errs bytes.Buffer
	start := time.Now()
	assert.Equal(t, 1, run(ctx, []string{"-duration", "1m", "-out", dir}, &out, &errs))
	assert.Contains(t, errs.String(), "interrupted")
	testscope.InTime(t, time.Since(start), 30*time.Second, "the end")
	assert.NoDirExists(t, dir)
}

func TestRivalsStayOutOfTheLibrarysModule(t *testing.T) {
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		for _, rival := range []string{"redsync", "bsm/redislock", "rueidis"} {
			assert.NotContains(t, string(text), rival, name)
		}
	}
}

func TestOrdersAreWrittenToADisk(t *testing.T) {
	assert.Equal(t, diskFolder, plan{}.dataOf(contender.OverBatch))
	assert.NotEqual(t, diskFolder, plan{}.dataOf(contender.OverPostgres))
	assert.Equal(t, "/data", plan{data: "/data"}.dataOf(contender.OverBatch))
}

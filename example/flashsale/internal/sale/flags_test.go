package sale

import (
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFlags(t *testing.T) {
	s, err := program.parse(nil, io.Discard)
	require.NoError(t, err)
	s.program = nil
	assert.Equal(t, Settings{
		Backend: "memory://", Instances: 4, Buyers: 250, Stock: 100, Threshold: 50,
		Wait: 10 * time.Second, Ramp: 100 * time.Millisecond, RTT: time.Millisecond, Procs: 1, TTL: 5 * time.Second, Think: time.Millisecond,
	}, s)

	s, err = program.parse(strings.Fields("-instances 2 -buyers 3 -stock 4 -threshold 0 -wait 1s -ttl 3s -ramp 0s -rtt 0 -json"), io.Discard)
	require.NoError(t, err)
	s.program = nil
	assert.Equal(t, Settings{
		Backend: "memory://", Instances: 2, Buyers: 3, Stock: 4, Threshold: 0, Wait: time.Second, Procs: 1, TTL: 3 * time.Second, Think: time.Millisecond, JSON: true,
	}, s)
}

func TestFlagsOfADatabase(t *testing.T) {
	s, err := program.parse(strings.Fields("-db sqlite"), io.Discard)
	require.NoError(t, err)
	assert.Equal(t, []string{"none", "optimistic", "pessimistic", "statement", "lock", "batch"}, s.Modes)
	assert.Equal(t, []int{1, 4, 16}, s.Pools)
	assert.Equal(t, 1, s.Rounds)
	assert.Equal(t, time.Millisecond, s.Think)
	assert.Zero(t, s.RTT, "the way to the database is not slowed down either")

	s, err = program.parse(strings.Fields("-db sqlite:f -mode statement,none,statement -pool 8,2 -rounds 3 -think 0s -procs 2"), io.Discard)
	require.NoError(t, err, "processes need a shared lock service for the lock only")
	assert.Equal(t, []string{"none", "statement"}, s.Modes)
	assert.Equal(t, []int{2, 8}, s.Pools)
}

func TestFlagsOfServersThatShareAFile(t *testing.T) {
	dir := t.TempDir()
	for _, db := range []string{dir + "/my shop.db", "sqlite:" + dir + "/my shop.db"} {
		s, err := program.parse([]string{"-serve", ":0", "-db", db}, io.Discard)
		require.NoError(t, err)
		assert.Equal(t, "sqlite:"+dir+"/my shop.db", s.DB)
		assert.Equal(t, "sqlite://"+dir+"/my%20shop.db.locks", s.Backend)
	}
	s, err := program.parse(strings.Fields("-serve :0 -db shop.db -backend redis://h"), io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "redis://h", s.Backend)
}

func TestWrongFlagsSayWhatIsAllowed(t *testing.T) {
	cases := map[string]string{
		"-instances 0":        "allowed: a whole number from 1 to 64",
		"-buyers many":        "allowed: a whole number from 1 to 10000",
		"-stock -1":           "allowed: a whole number from 1 to 1000000",
		"-threshold -1":       "allowed: a whole number from 0",
		"-wait 5":             "allowed: a duration from 1ms to 1m0s, as in 250ms or 10s",
		"-ramp 2h":            "allowed: a duration from 0s to 1m0s",
		"-ttl 10ms":           "allowed: a duration from 1s to 1m0s",
		"-rtt 2s":             "allowed: a duration from 0s to 1s",
		"-procs 2":            "memory:// is inside one process",
		"-backend gopher://x": "allowed: memory://",
		"-backend nonsense":   "allowed: memory://",
		"-serve 8080":         "allowed: host:port",
		"-serve :0 -db sqlite -backend redis://x":   "allowed with it: FILE, sqlite:FILE",
		"-serve :0 -db sqlite:f -backend memory://": "needs a -backend that servers share",
		"-serve :0 -db mysql://h/shop":              "needs a -backend that servers share",
		"-db shop":                                  "-db: no database of this kind; allowed: sqlite",
		"-serve :0 -json":                           "-json is for the rounds",
		"-serve :0 -procs 2 -backend redis://x":     "-procs is for the rounds",
		"-mode none":                                "-mode needs -db: allowed: sqlite",
		"-pool 4 -think 1s":                         "-think needs -db: allowed: sqlite",
		"-db oracle://u:secret@h/shop":              "; allowed: sqlite (a temporary file), FILE, sqlite:FILE or sqlite:///FILE, mysql://",
		"-db mysql://u:secret@h":                    "; allowed: sqlite (a temporary file)",
		"-db sqlite -mode none,both":                `no mode "both"; allowed: none, optimistic, pessimistic, statement, lock`,
		"-db sqlite -pool 0":                        "allowed: whole numbers from 1 to 1000, several with commas",
		"-db sqlite -rounds 0":                      "allowed: a whole number from 1 to 100",
		"-db sqlite -procs 2":                       "memory:// is inside one process",
		"-backend rediss:u:secret@h":                "-backend: allowed: memory://",
		"-colour":                                   "flag provided but not defined: -colour",
		"100":                                       `unexpected argument "100": only flags are allowed`,
	}
	for args, want := range cases {
		t.Run(args, func(t *testing.T) {
			status, stdout, stderr := play(t.Context(), strings.Fields(args)...)
			assert.Equal(t, StatusUsage, status)
			assert.Contains(t, stderr, want)
			assert.Empty(t, stdout)
			assert.NotContains(t, stderr, "secret")
		})
	}
}

// The program that compiles in a third of the time says where the rest is.
func TestWhatTheSmallProgramLacks(t *testing.T) {
	small := Program{}
	for args, want := range map[string]string{
		"-serve :0":           "go run ./example/flashsale/full -serve",
		"-backend redis://h":  "allowed: memory:// (inside one process), and in go run ./example/flashsale/full those",
		"-db sqlite -procs 2": "memory:// is inside one process",
	} {
		_, err := small.parse(strings.Fields(args), io.Discard)
		assert.ErrorContains(t, err, want)
	}
	s, err := small.parse(strings.Fields("-db sqlite -mode statement -procs 2"), io.Discard)
	require.NoError(t, err)
	assert.Equal(t, 4, s.Instances)
}

func TestProcsAndInstances(t *testing.T) {
	for flags, want := range map[string]int{"-procs 6": 6, "-procs 3": 4, "-procs 3 -instances 4": 4} {
		s, err := program.parse(strings.Fields("-backend redis://x "+flags), io.Discard)
		require.NoError(t, err)
		assert.Equal(t, want, s.Instances, "each process gets an instance")
	}
	_, err := program.parse(strings.Fields("-backend redis://x -instances 4 -procs 6"), io.Discard)
	assert.ErrorContains(t, err, "at most one process per instance")
}

func TestHelp(t *testing.T) {
	status, stdout, stderr := play(t.Context(), "-help")
	assert.Equal(t, StatusOK, status)
	assert.Empty(t, stderr)
	assert.Contains(t, stdout, "-threshold")
	_, err := program.parse([]string{"-h"}, io.Discard)
	assert.ErrorIs(t, err, flag.ErrHelp)
}

package main

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
	s, err := parseFlags(nil, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, settings{
		Backend: "memory://", Instances: 4, Buyers: 250, Stock: 100, Threshold: 50,
		Wait: 10 * time.Second, Ramp: 100 * time.Millisecond, Procs: 1,
	}, s)

	s, err = parseFlags(strings.Fields("-instances 2 -buyers 3 -stock 4 -threshold 0 -wait 1s -ramp 0s -json"), io.Discard)
	require.NoError(t, err)
	assert.Equal(t, settings{
		Backend: "memory://", Instances: 2, Buyers: 3, Stock: 4, Threshold: 0, Wait: time.Second, Procs: 1, JSON: true,
	}, s)
}

func TestWrongFlagsSayWhatIsAllowed(t *testing.T) {
	cases := map[string]string{
		"-instances 0":                          "allowed: a whole number from 1 to 64",
		"-buyers many":                          "allowed: a whole number from 1 to 10000",
		"-stock -1":                             "allowed: a whole number from 1 to 1000000",
		"-threshold -1":                         "allowed: a whole number from 0",
		"-wait 5":                               "allowed: a duration from 1ms to 1m0s, as in 250ms or 10s",
		"-ramp 2h":                              "allowed: a duration from 0s to 1m0s",
		"-procs 2":                              "memory:// is inside one process",
		"-backend etcd://x":                     "allowed: memory://",
		"-backend nonsense":                     "allowed: memory://",
		"-serve 8080":                           "allowed: host:port",
		"-serve :0 -json":                       "-json is for the rounds",
		"-serve :0 -procs 2 -backend redis://x": "-procs is for the rounds",
		"-colour":                               "flag provided but not defined: -colour",
		"100":                                   `unexpected argument "100": only flags are allowed`,
	}
	for args, want := range cases {
		t.Run(args, func(t *testing.T) {
			status, stdout, stderr := sale(t.Context(), strings.Fields(args)...)
			assert.Equal(t, statusUsage, status)
			assert.Contains(t, stderr, want)
			assert.Empty(t, stdout)
		})
	}
}

func TestProcsAndInstances(t *testing.T) {
	s := settings{Backend: "redis://x", Instances: 4, Procs: 6}
	require.NoError(t, s.fit(false))
	assert.Equal(t, 6, s.Instances, "each process gets an instance")

	s = settings{Backend: "redis://x", Instances: 4, Procs: 6}
	assert.ErrorContains(t, s.fit(true), "at most one process per instance")
	s = settings{Backend: "redis://x", Instances: 4, Procs: 3}
	require.NoError(t, s.fit(true))
	assert.Equal(t, 4, s.Instances)
}

func TestHelp(t *testing.T) {
	status, stdout, stderr := sale(t.Context(), "-help")
	assert.Equal(t, statusOK, status)
	assert.Empty(t, stderr)
	assert.Contains(t, stdout, "-threshold")
	_, err := parseFlags([]string{"-h"}, io.Discard)
	assert.ErrorIs(t, err, flag.ErrHelp)
}

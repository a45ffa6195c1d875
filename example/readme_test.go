// Package example holds programs that use wllock, and checks that those on the pages work as they say.
package example

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

const quickStart = "../docs/quickstart.md"

// program writes a block to a file. It builds as part of this module, because go accepts files from anywhere.
func program(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestProgramsAreFormatted(t *testing.T) {
	t.Parallel()
	found := append(blocks(t, quickStart, "go"), blocks(t, "../README.md", "go")...)
	require.Len(t, found, 3)
	for _, b := range found {
		formatted, err := format.Source([]byte(b.text))
		require.NoError(t, err)
		assert.Equal(t, string(formatted), b.text, "%v: gofmt would change it", b)
	}
}

func TestQuickStartPrintsWhatItSays(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "run", program(t, blocks(t, quickStart, "go")[0].text)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.True(t, slices.ContainsFunc(blocks(t, quickStart, ""), func(b block) bool { return b.text == string(out) }), "%s", out)
}

// TestQuickStartBuildsAgainstAClone types the commands of the page into a module beside this repository. What it needs has been downloaded.
func TestQuickStartBuildsAgainstAClone(t *testing.T) {
	testscope.Long(t, "makes a module and builds it")
	t.Parallel()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	require.Contains(t, blocks(t, quickStart, "")[1].text, "=../wllock\n")
	module := filepath.Dir(program(t, blocks(t, quickStart, "go")[0].text))
	require.NoError(t, os.Symlink(root, filepath.Join(module, "../wllock")))
	shell := exec.CommandContext(t.Context(), "sh", "-ec", "go mod init shop\n"+blocks(t, quickStart, "")[1].text+"go run .")
	shell.Dir, shell.Env = module, append(os.Environ(), "GOWORK=off", "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=-mod=mod")
	out, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), blocks(t, quickStart, "")[2].text)
}

// TestREADMEPrintsWhatItSays, over a Redis of its own.
func TestREADMEPrintsWhatItSays(t *testing.T) {
	t.Parallel()
	const page, server = "../README.md", "localhost:6379"
	text := blocks(t, page, "go")[0].text
	require.Contains(t, text, server)
	file := program(t, strings.Replace(text, server, redistest.Start(t).Addr, 1))
	out, err := exec.CommandContext(t.Context(), "go", "run", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, blocks(t, page, "")[0].text, string(out))
}

// answersTest is run with the second program of the quick start, as its package.
const answersTest = `package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

func TestAnswers(t *testing.T) {
	backend := memlock.New()
	defer backend.Close()
	locker, err := wllock.New("order", backend, wllock.WithThreshold(0))
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{product}", &shop{locker: locker})
	answer := func(product string) int {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("POST", "/orders/"+url.PathEscape(product), nil))
		return w.Code
	}
	busy, err := locker.Acquire(t.Context(), "product", "busy")
	require.NoError(t, err)
	require.Equal(t, http.StatusTooManyRequests, answer("busy"))
	require.Equal(t, http.StatusBadRequest, answer("line\nbreak"), "the key is the client's mistake")
	require.NoError(t, busy.Release(t.Context()))
	require.NoError(t, locker.Close(t.Context()))
	require.Equal(t, http.StatusServiceUnavailable, answer("1000"))
}
`

func TestServiceOfTheQuickStartBlamesTheClientForABadKey(t *testing.T) {
	testscope.Long(t, "plays whole sales or runs")
	t.Parallel()
	file := program(t, blocks(t, quickStart, "go")[1].text)
	test := filepath.Join(filepath.Dir(file), "main_test.go")
	require.NoError(t, os.WriteFile(test, []byte(answersTest), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "test", file, test).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

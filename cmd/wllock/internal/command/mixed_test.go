package command

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testproc"
)

// formats is the commit that set the formats of today: no release has them yet.
const formats = "6bff2c169d3afb12279add834023c1224f583c92"

// Two processes of this version and two of the one that set the formats use the same locks: they exclude each other, fences grow, and both
// versions get on. A change of a format needs another one here, and a line in the changelog.
func TestVersionsMixed(t *testing.T) {
	t.Parallel()
	bins := [2]string{filepath.Join(t.TempDir(), "now"), filepath.Join(t.TempDir(), "then")}
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err == nil {
		err = exec.Command("git", "cat-file", "-e", formats).Run()
	}
	if err != nil {
		err = fmt.Errorf("the history of this module, with commit %s: %w", formats[:7], err)
	}
	testproc.Need(t, err)
	root, then := strings.TrimSpace(string(top)), t.TempDir()
	archive := exec.Command("git", "archive", formats)
	archive.Dir = root
	tree, err := archive.Output()
	require.NoError(t, err)
	unpack := exec.Command("tar", "-x", "-C", then)
	unpack.Stdin = bytes.NewReader(tree)
	out, err := unpack.CombinedOutput()
	require.NoError(t, err, string(out))
	const program = "cmd/wllock/internal/mixed"
	require.NoError(t, os.CopyFS(filepath.Join(then, program), os.DirFS(filepath.Join(root, program))))
	for i, dir := range []string{root, then} {
		build := exec.Command("go", "build", "-o", bins[i], "./internal/mixed")
		build.Dir = filepath.Join(dir, "cmd/wllock")
		out, err := build.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	services := map[string]func(*testing.T) string{"redis": backends["redis"]}
	lasts := 3 * time.Second
	if !testing.Short() {
		services, lasts = maps.Clone(backends), 10*time.Second
		services["memcached"] = func(t *testing.T) string { return "memcached://" + dbtest.Memcached(t).Addr + "?unfenced=true" }
	}
	for name, service := range services {
		t.Run(name, func(t *testing.T) {
			url := service(t)
			onBackend(t, url)
			mix(t, bins, url, lasts, name != "memcached")
		})
	}
}

// turn is what a process has printed of a call.
type turn struct {
	key, kind    string
	began, ended int64
	fence        uint64
	version      int
}

func mix(t *testing.T, bins [2]string, url string, lasts time.Duration, fenced bool) {
	ctx, cancel := context.WithTimeout(t.Context(), lasts+time.Minute)
	defer cancel()
	ttl := "10s" // no lease is lost on a machine that is busy
	if strings.HasPrefix(url, "redlock") {
		ttl = "4s" // its servers have to be older
	}
	var mu sync.Mutex // guards all
	all := map[string][]turn{}
	var running sync.WaitGroup
	for p := range 4 {
		running.Go(func() {
			c := exec.CommandContext(ctx, bins[p%2], url, ttl, lasts.String())
			var said strings.Builder
			c.Stderr = &said
			out, err := c.Output()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("version %d: %v: %s", p%2, err, said.String())
			}
			for line := range strings.Lines(string(out)) {
				one := turn{version: p % 2}
				_, err := fmt.Sscan(line, &one.key, &one.kind, &one.began, &one.ended, &one.fence)
				if err != nil {
					t.Errorf("version %d: %q: %v", p%2, line, err)
				}
				all[one.key] = append(all[one.key], one)
			}
		})
	}
	running.Wait()
	require.NotEmpty(t, all)
	for key, turns := range all {
		slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.began, b.began) })
		var inside []turn
		var last uint64 // of the exclusive ones
		count, changes := [2]int{}, [2]int{}
		for i, one := range turns {
			inside = slices.DeleteFunc(inside, func(other turn) bool { return other.ended <= one.began })
			for _, other := range inside {
				if one.kind == "x" || other.kind == "x" {
					t.Errorf("%s: two are inside: %+v beside %+v", key, one, other)
				}
			}
			inside = append(inside, one)
			if one.kind == "p" && len(inside) > 2 {
				t.Errorf("%s: more than two permits: %+v", key, inside)
			}
			if one.kind == "x" && fenced {
				if one.fence <= last {
					t.Errorf("%s: fence %d after %d: %+v", key, one.fence, last, one)
				}
				last = one.fence
			}
			count[one.version]++
			if i > 0 && turns[i-1].version != one.version {
				changes[one.version]++
			}
		}
		t.Logf("%s: %d turns of this version, %d of the other; the lock went %d times to this one, %d times to the other",
			key, count[0], count[1], changes[0], changes[1])
		for v := range count {
			if count[v] < 10 || changes[v] < 3 {
				t.Errorf("%s: version %d has had %d turns, %d after one of the other", key, v, count[v], changes[v])
			}
		}
	}
}

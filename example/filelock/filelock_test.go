//go:build unix

package filelock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/distributed/locktest"
)

// counterDir names the directory in which a child process of TestProcesses counts.
const counterDir = "FILELOCK_COUNTER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(counterDir); dir != "" {
		count(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func open(t locktest.TB) locktest.Service {
	dir, err := os.MkdirTemp("", "filelock")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	connect := func() distributed.Backend {
		b, err := New(dir)
		if err != nil {
			t.Fatalf("%v", err)
		}
		return b
	}
	return locktest.Service{
		Backend: connect(), Another: connect,
		Expire: func(key string) { expire(store{dir}, key) },
		Cut: func(cut bool) { // the directory is gone for a while, like one on a disk that is unmounted
			if cut {
				_ = os.Rename(dir, dir+".away")
			} else {
				_ = os.Rename(dir+".away", dir)
			}
		},
	}
}

// expire has the owners of a lock be dead. Its queue stays.
func expire(s store, key string) {
	for err := register.ErrConflict; errors.Is(err, register.ErrConflict); {
		d, _ := s.Get(context.Background(), key)
		var lock map[string]any
		in := json.NewDecoder(bytes.NewReader(d.Data))
		in.UseNumber() // a fence is longer than a float64 is exact
		if _ = in.Decode(&lock); lock["queue"] == nil {
			delete(lock, "owners")
		} else {
			lock["owners"] = []owner{{"nobody", "nobody", 1}} // whose turn is over at once
		}
		data, _ := json.Marshal(lock)
		_, err = s.Put(context.Background(), key, data, d.Version, time.Minute)
	}
}

type owner struct {
	ID       string        `json:"id"`
	Instance string        `json:"instance"`
	TTL      time.Duration `json:"ttl"`
}

func TestConformance(t *testing.T) {
	locktest.Run(t, locktest.Fixture{Open: open, Skip: byChance, TTL: 2 * locktest.DefaultTTL}) // polling is slow on a busy machine
}

// byChance skips the cases that a busy disk may outlast.
func byChance(c locktest.Case) string {
	chancy := []string{"canceling and leaving at any time leaves nothing", "canceling and leaving permits at any time leaves nothing"}
	if testing.Short() && slices.Contains(chancy, c.Name) {
		return "fails by chance"
	}
	return ""
}

// What cannot be read or written is an error at once, since it is certain that nothing was changed. A file of something else stays.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(s store, file string) error
		is     error
	}{
		"a file of something else": {func(_ store, file string) error { return os.WriteFile(file, []byte("hello"), 0o600) }, distributed.ErrRefused},
		"an empty file":            {func(_ store, file string) error { return os.WriteFile(file, nil, 0o600) }, distributed.ErrRefused},
		"no file can be written":   {func(_ store, file string) error { return os.Mkdir(file+".new", 0o700) }, distributed.ErrRefused},
		"the directory is gone":    {func(s store, _ string) error { return os.Remove(s.dir) }, distributed.ErrUnreached},
	} {
		t.Run(name, func(t *testing.T) {
			s := store{t.TempDir()}
			b, err := New(s.dir)
			require.NoError(t, err)
			require.NoError(t, c.breaks(s, s.file("k")))
			before, _ := os.ReadFile(s.file("k"))
			_, _, err = b.Enter(t.Context(), distributed.Request{Key: "k", Instance: "a", TTL: time.Minute})
			require.ErrorIs(t, err, distributed.ErrUnavailable)
			require.ErrorIs(t, err, c.is)
			after, _ := os.ReadFile(s.file("k"))
			require.Equal(t, before, after)
			require.NoError(t, b.Close())
		})
	}
}

// Processes exclude each other: each adds 1 to a number in a file, again and again.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	children := make([]*exec.Cmd, 3)
	for i := range children {
		children[i] = exec.CommandContext(t.Context(), os.Args[0])
		children[i].Env = append(os.Environ(), counterDir+"="+dir)
		children[i].Stderr = os.Stderr
		require.NoError(t, children[i].Start())
	}
	for _, c := range children {
		require.NoError(t, c.Wait())
	}
	text, err := os.ReadFile(filepath.Join(dir, "number"))
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(len(children)*rounds), string(text))
}

const rounds = 50

func count(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // many times what it takes
	defer cancel()
	number := filepath.Join(dir, "number")
	backend, err := New(filepath.Join(dir, "locks"))
	if err != nil {
		panic(err)
	}
	locker, err := wllock.New("test", backend, wllock.WithOwnedBackend())
	if err != nil {
		panic(err)
	}
	for range rounds {
		err := locker.Do(ctx, "counter", "1", func(context.Context) error {
			text, _ := os.ReadFile(number)
			n, _ := strconv.Atoi(string(text))
			return os.WriteFile(number, []byte(strconv.Itoa(n+1)), 0o600)
		})
		if err != nil {
			panic(err)
		}
	}
	if err := locker.Close(ctx); err != nil {
		panic(err)
	}
}

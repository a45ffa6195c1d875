//go:build unix

package filelock

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
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
	b := connect().(*Backend)
	return locktest.Service{
		NoPermits: true,
		Backend:   b, Another: connect,
		Expire: func(key string) {
			_ = b.update(context.Background(), key, func(s *state, _ time.Time) { s.Owners = nil })
		},
		Cut: func(cut bool) { // the directory is gone for a while, like one on a disk that is unmounted
			if cut {
				_ = os.Rename(dir, dir+".away")
			} else {
				_ = os.Rename(dir+".away", dir)
			}
		},
	}
}

func TestConformance(t *testing.T) {
	locktest.Run(t, locktest.Fixture{Open: open, Skip: byChance, TTL: 2 * locktest.DefaultTTL}) // polling is slow on a busy machine
}

// byChance skips the case whose leases a busy disk may outlast.
func byChance(c locktest.Case) string {
	if testing.Short() && c.Name == "a release during a renewal is final" {
		return "fails by chance"
	}
	return ""
}

// While Enter is between its change of the file and the end of its own notes, a Release of its Prev finds the file without
// the owner. It is to know then that the owner was released there, and not lost.
func TestReleaseBesideAnEnterWithTheSamePrevDoesNotCallItLost(t *testing.T) {
	b, err := New(t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	req := distributed.Request{Key: "k", Instance: "a", Mode: distributed.Exclusive, TTL: time.Minute}
	first, _, err := b.Enter(t.Context(), req)
	require.NoError(t, err)
	prev := first.(*lease)
	req.Prev = prev

	b.mu.Lock() // at which Enter comes to a halt when it has changed the file
	entered := make(chan error, 1)
	go func() {
		_, _, err := b.Enter(t.Context(), req)
		entered <- err
	}()
	var gone, released bool
	require.Eventually(t, func() bool {
		err := b.update(t.Context(), "k", func(s *state, _ time.Time) {
			gone, released = find(s.Owners, prev.ID) == nil, prev.released.Load()
		})
		return err == nil && gone
	}, 10*time.Second, time.Millisecond)
	b.mu.Unlock()
	require.NoError(t, <-entered)
	require.True(t, released, "a Release that reads the file next would take the lease for lost")
	require.NoError(t, prev.Release(t.Context()))
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

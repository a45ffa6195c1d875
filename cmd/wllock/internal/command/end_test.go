//go:build linux

package command

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wllock/wllock/internal/testscope"
)

// lostSoon is a run whose lock is lost while its command works.
var lostSoon = []string{"run", "--lock-time-max", "200ms", "--grace", "300ms", "n", "1", "--", "sh", "-c"}

// Nobody reads what wllock says: its command is ended all the same, at once, and so is wllock.
func TestRunEndsItsCommandThoughNobodyListens(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, read, write *os.File){
		"the reader is gone": func(t *testing.T, read, _ *os.File) { require.NoError(t, read.Close()) },
		"the pipe is full": func(t *testing.T, _, write *os.File) {
			size, err := unix.FcntlInt(write.Fd(), unix.F_GETPIPE_SZ, 0)
			require.NoError(t, err)
			_, err = write.Write(make([]byte, size))
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, write, err := os.Pipe()
			require.NoError(t, err)
			defer func() { _ = read.Close() }()
			p := command(t, file(t), append(lostSoon, "echo pid $$ in; exec 2>/dev/null; sleep 60")...)
			p.Stderr = write
			prepare(t, read, write)
			began := time.Now()
			require.NoError(t, p.Start())
			p.says("in")
			require.Equal(t, lost, p.ends())
			testscope.InTime(t, time.Since(began), 5*time.Second, "the end")
			gone(t, pidOf(p, "pid"))
			require.NoError(t, write.Close())
		})
	}
}

func pidOf(p *program, word string) string {
	return regexp.MustCompile(word + ` (\d+)`).FindStringSubmatch(p.out.String())[1]
}

// Nothing that descends from the command works on beside the next holder, whatever group and session it is in.
func TestRunEndsAllThatDescendsFromItsCommand(t *testing.T) {
	t.Parallel()
	env := file(t)
	p := start(t, env, "run", "--grace", "300ms", "n", "1", "--", "sh", "-c", `setsid sh -c 'trap "" TERM; echo session $$; while :; do sleep 0.01; done' &
		(sh -c 'echo orphan $$; exec sleep 60' &); while :; do sleep 0.01; done`).says("session").says("orphan")
	exits(t, 0, env, "break", "--yes", "--by", "ops", "--reason", "a test", "n", "1")
	require.Equal(t, lost, p.ends(), p.err.String())
	for _, word := range []string{"session", "orphan"} {
		_, err := os.Stat("/proc/" + pidOf(p, word))
		require.ErrorIs(t, err, os.ErrNotExist, word)
	}
}

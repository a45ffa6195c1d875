//go:build unix

package live

import (
	"context"
	"io"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/wllock/wllock/distributed"
)

const (
	// keyPoll is how long the end of the program waits for the reader of keys at most.
	keyPoll = 100
	ctrlC   = 3
	// defaultWidth and defaultHeight are those of a terminal that does not know its own.
	defaultWidth, defaultHeight = 80, 24
)

// Options are what a user asks for.
type Options struct {
	Title    string
	Prefix   string
	Shown    func(full string) string // a full name as it is shown
	Filter   *regexp.Regexp           // nil: all
	Interval time.Duration
	Colour   bool
}

// Run shows the locks until q, Ctrl-C, a signal, or the end of ctx. The terminal is as before then.
func Run(ctx context.Context, in, out *os.File, i distributed.Inspector, o Options) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return err
	}
	defer func() { _ = term.Restore(int(in.Fd()), before) }()
	if _, err := io.WriteString(out, enter); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(out, leave) }()

	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	r := newReader(i, o)
	all.Go(func() { r.run(ctx) })
	all.Go(func() { keys(ctx, in, cancel) })
	return loop(ctx, out, r, screen{o.Title, o.Colour})
}

// loop draws: when there is a first screen, in each interval, and when the window changes.
func loop(ctx context.Context, out *os.File, r *reader, s screen) error {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	tick := time.NewTicker(r.interval)
	defer tick.Stop()
	first := time.NewTimer(2 * atFirst) // for a backend that does not answer
	defer first.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.changed:
		case <-tick.C:
		case <-first.C:
		case <-resized:
		}
		width, height, err := term.GetSize(int(out.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			width, height = defaultWidth, defaultHeight
		}
		now := time.Now()
		if err := s.draw(out, r.first(height-headLines-footLines, now), width, height, now); err != nil {
			return err
		}
	}
}

// keys calls quit at q, Ctrl-C and the end of the input.
func keys(ctx context.Context, in *os.File, quit func()) {
	defer quit()
	wait := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		if n, err := unix.Poll(wait, keyPoll); n <= 0 && (err == nil || err == unix.EINTR) {
			continue
		}
		var typed [16]byte
		n, err := unix.Read(int(in.Fd()), typed[:])
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		for _, key := range typed[:n] {
			if key == 'q' || key == 'Q' || key == ctrlC {
				return
			}
		}
	}
}

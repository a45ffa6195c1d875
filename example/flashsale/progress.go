package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
)

// display shows the progress of a round: a moving bar on a terminal, otherwise one line per round.
type display struct {
	w        io.Writer
	terminal bool
}

func newDisplay(w io.Writer) display {
	f, ok := w.(*os.File)
	return display{w: w, terminal: ok && isatty.IsTerminal(f.Fd())}
}

// watch shows m until stop is called, which leaves the final state on the screen.
func (d display) watch(r round, buyers int, m *meter) (stop func()) {
	started := time.Now()
	line := func() string {
		return fmt.Sprintf("%-9s %s %d of %d buyers answered, %d pieces sold, %.1f s", r.title,
			bar(int(m.answered.Load()), buyers), m.answered.Load(), buyers, m.bought.Load(), time.Since(started).Seconds())
	}
	if !d.terminal {
		return func() { fmt.Fprintln(d.w, line()) }
	}
	redraw := func() { fmt.Fprint(d.w, "\r"+line()+eraseRest) }
	stopRedraw := every(reportInterval, redraw)
	return func() {
		stopRedraw()
		redraw()
		fmt.Fprintln(d.w)
	}
}

const (
	// eraseRest is the ANSI sequence that clears the rest of an earlier, longer line.
	eraseRest = "\x1b[K"
	barWidth  = 24 // leaves room for the words in 80 columns
)

func bar(done, total int) string {
	full := min(barWidth, barWidth*done/max(total, 1))
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "]"
}

// reportInterval is as short as an eye can follow.
const reportInterval = 50 * time.Millisecond

// every calls do at each interval until stop is called; when stop has returned, do is not called again.
func every(interval time.Duration, do func()) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				do()
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

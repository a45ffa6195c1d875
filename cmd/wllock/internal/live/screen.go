package live

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/distributed"
)

// Control sequences of terminals, those of ECMA-48 and the alternate screen of xterm, which all of today understand.
const (
	enter     = "\x1b[?1049h\x1b[?25l" // the other screen, without a cursor
	leave     = "\x1b[?25h\x1b[?1049l"
	home      = "\x1b[H"
	restOf    = "\x1b[K" // erases the rest of the line
	restBelow = "\x1b[J"
	plain     = "\x1b[0m"
	bold      = "\x1b[1m"
	red       = "\x1b[31m"
	yellow    = "\x1b[33m"
	reverse   = "\x1b[7m"
)

// headLines are those above the locks, and below them one for the keys.
const headLines, footLines = 3, 1

// screen draws views.
type screen struct {
	title  string
	colour bool
}

// draw writes a whole screen at once, over the one before, so that nothing flickers.
func (s screen) draw(w io.Writer, v view, width, height int, now time.Time) error {
	lines := []string{s.head(v, now, width), s.state(v, width), s.paint(reverse, cut(row("WAITING", "HELD", "LEASE", "MODE", "HOLDER", "KEY"), width))}
	for _, i := range v.locks {
		lines = append(lines, s.lock(i, now, width))
	}
	for len(lines) < height-footLines {
		lines = append(lines, "")
	}
	lines = append(lines[:max(min(len(lines), height-footLines), 0)], cut("q quit", width))
	_, err := io.WriteString(w, home+strings.Join(lines, restOf+"\r\n")+restOf+restBelow)
	return err
}

func (s screen) head(v view, now time.Time, width int) string {
	count := fmt.Sprintf("%d held, %d waiting", v.held, v.waiting)
	if !v.complete {
		count += ", reading on"
	}
	return s.paint(bold, cut(fmt.Sprintf("wllock top  %s  %s  %s", s.title, now.Format("15:04:05"), count), width))
}

func (s screen) state(v view, width int) string {
	if v.err == nil {
		return ""
	}
	return s.paint(red, cut(show.Text(v.err.Error()), width))
}

func (s screen) lock(i distributed.Inspection, now time.Time, width int) string {
	waiting := show.Waiting(i)
	line := cut(row(fmt.Sprint(waiting), show.AgeText(i, now), show.LeftText(i), modeText(i), show.Holder(i), show.Text(i.Key)), width)
	if waiting > 0 {
		return s.paint(yellow, line)
	}
	return line
}

func modeText(i distributed.Inspection) string {
	if i.Foreign {
		return "-"
	}
	return i.Mode.String()
}

func row(waiting, held, lease, mode, holder, key string) string {
	return fmt.Sprintf("%7s %7s %7s  %-9s  %-32s  %s", waiting, held, lease, mode, cut(holder, 32), key)
}

func (s screen) paint(colour, text string) string {
	if !s.colour {
		return text
	}
	return colour + text + plain
}

// cut shortens a text to so many characters.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	if width < 1 {
		return ""
	}
	return string([]rune(text)[:width-1]) + "…"
}

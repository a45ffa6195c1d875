package live

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wllock/wllock/cmd/wllock/internal/show"
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
func (s screen) draw(w io.Writer, v Frame, width, height int, now time.Time) error {
	holders := s.holderWidth(v, width)
	title := row("WAITING", "HELD", "LEASE", "MODE", "HOLDER", "KEY", holders, width)
	lines := []string{s.head(v, now, width), s.state(v, width), s.paint(reverse, title)}
	for _, l := range v.Locks {
		lines = append(lines, s.lock(l, now, width, holders))
	}
	for len(lines) < height-footLines {
		lines = append(lines, "")
	}
	lines = append(lines[:max(min(len(lines), height-footLines), 0)], cut("q quit", width))
	_, err := io.WriteString(w, home+strings.Join(lines, restOf+"\r\n")+restOf+restBelow)
	return err
}

func (s screen) head(v Frame, now time.Time, width int) string {
	count := fmt.Sprintf("%d held, %d waiting", v.Held, v.Waiting)
	if !v.Complete {
		count += ", reading on"
	}
	return s.paint(bold, cut(fmt.Sprintf("wllock top  %s  %s  %s", s.title, now.Format("15:04:05"), count), width))
}

func (s screen) state(v Frame, width int) string {
	if v.Err == nil {
		return ""
	}
	return s.paint(red, cut(show.Text(v.Err.Error()), width))
}

const (
	// row's columns before that of the holders, and the blanks behind it.
	rowBefore = "%7s %7s %7s  %-9s  "
	rowGap    = "  "
)

// holderWidth is that of the column of holders: what they need, but no more than the keys leave them, which one looks for.
func (s screen) holderWidth(v Frame, width int) int {
	const least = len("HOLDER")
	holders, keys := least, len("KEY")
	for _, l := range v.Locks {
		holders = max(holders, utf8.RuneCountInString(show.Holder(l.Inspection)))
		keys = max(keys, utf8.RuneCountInString(s.key(l)))
	}
	return max(least, min(holders, width-len(fmt.Sprintf(rowBefore, "", "", "", ""))-len(rowGap)-keys))
}

// key is that of a lock without what the head says of all.
func (s screen) key(l *Lock) string {
	return show.Text(strings.TrimPrefix(l.Name, strings.TrimSuffix(s.title, "*")))
}

func (s screen) lock(l *Lock, now time.Time, width, holders int) string {
	i, waiting := l.Inspection, show.Waiting(l.Inspection)
	line := row(fmt.Sprint(waiting), show.AgeText(i, now), show.LeftText(i), show.Mode(i), show.Holder(i), s.key(l), holders, width)
	if waiting > 0 {
		return s.paint(yellow, line)
	}
	return line
}

func row(waiting, held, lease, mode, holder, key string, holders, width int) string {
	before := fmt.Sprintf(rowBefore+"%-*s"+rowGap, waiting, held, lease, mode, holders, cut(holder, holders))
	return cut(before, width) + cutMiddle(key, width-utf8.RuneCountInString(before))
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

// cutMiddle is cut for keys, which begin alike: it keeps the end, too.
func cutMiddle(text string, width int) string {
	all := []rune(text)
	if len(all) <= width {
		return text
	}
	end := max(width-1, 0) * 2 / 3
	return cut(string(all[:len(all)-end]), width-end) + string(all[len(all)-end:])
}

// Package show writes what backends tell of locks: for people and for programs.
package show

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/wllock/wllock/distributed"
)

// Who writes all that is known of a lock, and of the latest runs under it, if there were any.
func Who(w io.Writer, i distributed.Inspection, runs distributed.Runs, now time.Time) {
	if !i.Held() {
		fmt.Fprintf(w, "%s is free\n", Text(i.Key))
	} else {
		fmt.Fprintf(w, "%s is held, %s\n", Text(i.Key), heldBy(i))
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, h := range i.Holders {
		holder(table, i, h, now)
	}
	if i.MoreHolders > 0 {
		fmt.Fprintf(table, "  \tand %d more holders\n", i.MoreHolders)
	}
	if i.Fence > 0 && !i.Foreign { // a foreigner has none: the last one is of the holder before
		fmt.Fprintf(table, "  fence\t%s\n", fences(i))
	}
	if at := lastAcquired(i, now); !at.IsZero() {
		fmt.Fprintf(table, "  last acquired\t%s, %s\n", stamp(at), ago(at, now))
	}
	queue(table, i, now)
	if r := runs.Last; !r.Began.IsZero() {
		fmt.Fprintf(table, "  last run\t%s, %s, took %s, on %s\n", Text(r.Result), ago(r.Ended(), now), Short(r.Took), Text(Host(r.Instance)))
		if r.Result != distributed.RunOK {
			fmt.Fprintf(table, "  last success\t%s\n", lastSuccess(runs, now))
		}
	}
	if i.Broken != nil {
		fmt.Fprintf(table, "  broken\t%s\n", Broken(*i.Broken))
	}
	_ = table.Flush() // to w, whose errors show when the program ends
}

// lastAcquired is when a free lock was acquired last, or its holder drew a fence, where fences are the service's time. Zero: that is not known,
// or the last fence is of a break.
func lastAcquired(i distributed.Inspection, now time.Time) time.Time {
	const oldest = 1_577_836_800_000_000_000 // 2020. Counters are below
	if i.Held() || i.Fence < oldest || i.Fence > uint64(now.Add(time.Hour).UnixNano()) || i.Broken != nil && i.Broken.Fence == i.Fence {
		return time.Time{}
	}
	return time.Unix(0, int64(i.Fence))
}

// heldBy is the mode, or how many permits are held if the first in the queue says of how many.
func heldBy(i distributed.Inspection) string {
	switch {
	case i.Foreign:
		return i.Mode.String()
	case len(i.Waiters) == 0 || i.Waiters[0].Limit == 0 || i.Mode != distributed.Shared:
		return Mode(i)
	}
	return fmt.Sprintf("%d of %d permits", len(i.Holders)+i.MoreHolders, i.Waiters[0].Limit)
}

// permit is the number behind the instance of one that has, or waits for, a permit.
var permit = regexp.MustCompile(`#[0-9]+$`)

// Mode is how the holders have the lock: "exclusive", "shared" or "permits". "-": it is free, or that is not known.
func Mode(i distributed.Inspection) string {
	switch {
	case i.Foreign || !i.Held():
		return "-"
	case i.Mode == distributed.Shared && permit.MatchString(i.Holders[0].Instance):
		return "permits"
	}
	return i.Mode.String()
}

func holder(w io.Writer, i distributed.Inspection, h distributed.Holder, now time.Time) {
	name := instance(h.Instance)
	switch {
	case i.Foreign:
		name = "a client that is not wllock"
	case h.Detached():
		name = detached + ", until its token is used"
	}
	fmt.Fprintf(w, "  holder\t%s\n", name)
	if since := h.Since; !since.IsZero() {
		fmt.Fprintf(w, "  since\t%s, %s ago\n", stamp(since), Short(now.Sub(since)))
	} else if !i.Since.IsZero() {
		fmt.Fprintf(w, "  since\t%s or later\n", stamp(i.Since))
	}
	if h.Left != 0 {
		fmt.Fprintf(w, "  lease\t%s\n", Left(h.Left))
	}
}

// fences are those that the holder may have passed on to a store: it uses them up one by one.
func fences(i distributed.Inspection) string {
	first := firstFence(i)
	switch {
	case first == 0:
		return fmt.Sprintf("%d at most", i.Fence)
	case first < i.Fence:
		return fmt.Sprintf("%d to %d", first, i.Fence)
	}
	return strconv.FormatUint(i.Fence, 10)
}

func firstFence(i distributed.Inspection) uint64 {
	if len(i.Holders) == 0 {
		return 0
	}
	return i.Holders[0].Fence
}

// Waiter names one that waits, and for how long, if that is known.
func Waiter(w distributed.Waiter, now time.Time) (name, waits string) {
	if !w.Since.IsZero() {
		waits = Short(now.Sub(w.Since))
	}
	return Text(adoption.ReplaceAllString(w.Instance, "")), waits
}

func queue(w io.Writer, i distributed.Inspection, now time.Time) {
	fmt.Fprintf(w, "  waiting\t%d\n", Waiting(i))
	for n, one := range i.Waiters {
		text := fmt.Sprintf("%d. %s, ", n+1, instance(one.Instance))
		switch {
		case one.Limit > 0:
			text += fmt.Sprintf("for one of %d permits", one.Limit)
		case permit.MatchString(one.Instance):
			text += "for a permit"
		default:
			text += one.Mode.String()
		}
		if !one.Since.IsZero() {
			text += ", for " + Short(now.Sub(one.Since))
		}
		fmt.Fprintf(w, "  \t%s\n", text)
	}
	if len(i.Waiters) > 0 && i.MoreWaiters > 0 {
		fmt.Fprintf(w, "  \tand %d more\n", i.MoreWaiters)
	}
}

// Waiting is how many instances are queued.
func Waiting(i distributed.Inspection) int { return len(i.Waiters) + i.MoreWaiters }

// Broken is a break in one line.
func Broken(b distributed.Breaking) string {
	return fmt.Sprintf("%s by %s, held by %s, fence %d: %s", stamp(b.At), Text(b.By), Text(b.Holder), b.Fence, Text(b.Reason))
}

// ownLetters are those that identify a process behind its host, with the number and the command of a run before them, and the numbers of
// its Locker and of a permit behind them.
var ownLetters = regexp.MustCompile(`(-pid[0-9]+(-[A-Za-z0-9._-]+)?)?-[a-z2-7]{10}(-[0-9]+)?(#[0-9]+)?$`)

// Host is the host, or the pod, of an instance.
func Host(instance string) string { return ownLetters.ReplaceAllString(instance, "") }

// adoption is the number behind the instance of one that has adopted a lock.
var adoption = regexp.MustCompile(`#0[0-9]+$`)

func instance(id string) string {
	id = adoption.ReplaceAllString(id, "")
	switch host := Host(id); host {
	case "":
		return "not known"
	case id:
		return Text(id)
	default:
		return fmt.Sprintf("%s, on %s", Text(id), Text(host))
	}
}

// detached stands for the holder of a lock that no process has.
const detached = "detached"

// Holder names who has a lock in one word.
func Holder(i distributed.Inspection) string {
	if i.Foreign {
		return "(not wllock)"
	}
	if i.Held() && i.Holders[0].Detached() {
		return detached
	}
	return Text(adoption.ReplaceAllString(i.Holder(), ""))
}

// Redacted is a full name whose key is redacted, as services that have the same secret print it. nil: as it is.
func Redacted(full string, redact func(key string) string) string {
	if redact == nil {
		return full
	}
	parts := strings.SplitN(full, ":", 3)
	last := len(parts) - 1
	parts[last] = redact(parts[last])
	return strings.Join(parts, ":")
}

// Left is what is left of a lease.
func Left(d time.Duration) string {
	if d < 0 {
		return "never expires"
	}
	return Short(d) + " left"
}

// Text makes what others have written fit for a terminal: it is quoted if it could move the cursor, or pass for two columns.
func Text(s string) string {
	if !utf8.ValidString(s) || strings.Contains(s, "  ") || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// Lines makes a text fit for a terminal that has others' words in it, as an error does. What could move the cursor is escaped, and
// no line but the first begins as one of ours does.
func Lines(s string) string {
	var b strings.Builder
	for s != "" {
		r, size := utf8.DecodeRuneInString(s)
		one, rest := s[:size], s[size:]
		switch {
		case r == '\n' && rest != "" && rest[0] != ' ':
			b.WriteString("\n  ")
		case r == '\n', unicode.IsPrint(r) && one == string(r):
			b.WriteString(one)
		default:
			quoted := strconv.Quote(one)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = rest
	}
	return b.String()
}

// Short is a duration in at most six letters. Clocks differ, so what would be negative is none.
func Short(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000Z") }

// Age is for how long a lock has been held. 0: not known.
func Age(i distributed.Inspection, now time.Time) time.Duration {
	if i.Since.IsZero() {
		return 0
	}
	return max(now.Sub(i.Since), 0)
}

// Table writes a line for each lock, or two, without the fence, if one is wider than the terminal. Width 0: there is no terminal.
func Table(w io.Writer, all []distributed.Inspection, now time.Time, width int) error {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KEY\tMODE\tHELD\tLEASE\tWAITING\tHOLDER\tFENCE")
	for _, i := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n",
			Text(i.Key), Mode(i), AgeText(i, now), LeftText(i), Waiting(i), Holder(i), FenceText(i))
	}
	_ = table.Flush() // to text, which takes all
	wide := func(line string) bool { return utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > width }
	if width > 0 && slices.ContainsFunc(slices.Collect(strings.Lines(text.String())), wide) {
		text.Reset()
		for _, i := range all {
			fmt.Fprintf(&text, "%s\n  %s, held %s, lease %s, %d waiting, %s\n", Text(i.Key), Mode(i), AgeText(i, now), LeftText(i), Waiting(i), Holder(i))
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// FenceText is the fence for a column. A foreigner has none: the last one is of the holder before.
func FenceText(i distributed.Inspection) string {
	if i.Foreign {
		return "-"
	}
	return strconv.FormatUint(i.Fence, 10)
}

// AgeText is Age for a column.
func AgeText(i distributed.Inspection, now time.Time) string {
	if i.Since.IsZero() || !i.Held() {
		return "-"
	}
	return Short(Age(i, now))
}

// LeftText is what is left of the longest lease, for a column.
func LeftText(i distributed.Inspection) string {
	var longest time.Duration
	for _, h := range i.Holders {
		if h.Left < 0 {
			return "never"
		}
		longest = max(longest, h.Left)
	}
	if longest == 0 {
		return "-"
	}
	return Short(longest)
}
